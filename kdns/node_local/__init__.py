"""A node's own DNS cache: addresses that only this node has, and rules that keep them out of connection tracking.

It knows nftables and no directive.
Begin with `settings`; `io/upkeep` holds the interface and the rules while the process serves.
"""
