"""A node's own DNS cache: addresses that only this node has, and rules that keep them out of connection tracking."""
