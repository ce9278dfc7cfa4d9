"""The command line: one file for each command.

A command parses its flags and calls its composition root in `apps`.
Begin with `main`.
"""
