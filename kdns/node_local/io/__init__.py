"""The interface and the rules of a node-local DNS cache."""
