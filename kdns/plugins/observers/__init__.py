"""Directives that observe queries and responses: logs, dnstap, metadata."""
