"""The sockets and connections to the servers that questions are forwarded to."""
