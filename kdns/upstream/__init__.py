"""Other DNS servers: their specification, the queries to them, and the framing of connections.

It knows the protocol and no directive: `forward`, `loop`, `secondary` and `transfer` use it. Begin with `upstream`;
sockets and connections are in `io/`.
"""
