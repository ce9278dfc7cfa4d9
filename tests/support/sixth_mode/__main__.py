"""Command lines with the mode's row, which has to be there before flags and options are made of the rows.

A JSON list of command lines comes in, and what each says goes out, with its exit code.
"""

import json
import sys

import sixth_mode.row  # noqa: F401 - first
from kdns.cli.main import main  # isort: split

from click.testing import CliRunner

done = [CliRunner().invoke(main, arguments, input=text) for arguments, text in json.load(sys.stdin)]
print(json.dumps([(each.exit_code, each.output) for each in done]))
