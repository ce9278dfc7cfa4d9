"""Netlink: this machine's addresses, connection tracking, and what nftables holds."""
