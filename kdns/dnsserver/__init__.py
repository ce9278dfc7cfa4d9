"""The engine of the DNS server: what becomes of a query, whatever the directives are."""
