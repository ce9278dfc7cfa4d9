"""Directives that decide whether a query is answered."""
