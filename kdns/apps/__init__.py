"""Composition roots, each named like its command: configuration to running tasks."""
