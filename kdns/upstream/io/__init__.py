"""Sockets and connections to other DNS servers."""
