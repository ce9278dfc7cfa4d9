"""Other DNS servers: what is said of one, the queries that are sent to it, and how a connection frames them.

It knows the protocol and no directive: `forward`, `loop`, `secondary` and `transfer` use it.
Begin with `upstream`; sockets and connections are in `io/`.
"""
