"""The sockets and connections to other DNS servers."""
