"""Directives that look at queries and responses: logs, counts, metadata."""
