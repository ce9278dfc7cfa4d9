"""Netlink: the kernel's messages as values, and the sockets for them (`io/`)."""
