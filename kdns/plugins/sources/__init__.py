"""Directives that answer with records: the cluster, zones, files, other servers."""
