"""Netlink: what the kernel's messages say, and the sockets that carry them (`io/`)."""
