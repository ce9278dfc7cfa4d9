"""The running DNS server: listeners, transports, the world of directives, reload and metrics.

Begin with `server`; `udp` has the path of a datagram.
"""
