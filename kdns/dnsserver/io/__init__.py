"""The running DNS server: listeners, transports, capabilities of directives, reload and metrics.

Begin with `server`; `udp` has the path of a datagram.
"""
