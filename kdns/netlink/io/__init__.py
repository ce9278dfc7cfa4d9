"""Netlink sockets: requests, dumps and notices about addresses, connection tracking, nftables, ipset and IPVS."""
