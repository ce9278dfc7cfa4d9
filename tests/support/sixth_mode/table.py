"""Prints the table of docs/modes.md, with the mode's column."""

import sixth_mode.row  # noqa: F401 - first
from tools.mode_table import table

print(table())
