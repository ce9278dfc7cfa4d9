"""Hostile packets for the compiled reader of UDP sockets, under sanitizers, beside the reader in Python."""
