"""Corefile text to tokens to server blocks, with errors that name file, line and token."""
