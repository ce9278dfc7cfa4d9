"""Composition roots, each named like its command: they turn configuration into running tasks.

They may import every room.
Begin with `serve`.
"""
