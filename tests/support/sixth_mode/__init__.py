"""A mode that kdns does not have: its room. `python -m sixth_mode` is the command line with its row."""
