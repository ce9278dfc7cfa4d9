"""The DNS server at work: listeners, transports, the setup of directives, reload and metrics.

Begin with `server`; `udp` has the path of a datagram.
"""
