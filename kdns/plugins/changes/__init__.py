"""Directives that change a query or a response on its way."""
