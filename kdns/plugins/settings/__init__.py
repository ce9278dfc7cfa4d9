"""Directives that set options of a server block; they are in no chain."""
