"""The command line with the mode's row, which has to be there before flags and options are made of the rows."""

from __future__ import annotations

import sixth_mode.row  # noqa: F401 - first
from kdns.cli.main import main  # isort: split

main()
