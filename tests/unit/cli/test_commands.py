"""The table of commands, and that help imports none of them."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from kdns.cli.main import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_has_the_first_sentence_of_each_command(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert " ".join((command.help or "").split("\n\n")[0].split()).startswith(COMMANDS[name])


def test_there_is_no_other_command() -> None:
    assert main.get_command(click.Context(main), "main") is None


def test_help_imports_no_command() -> None:
    program = (
        "import sys\n"
        "from kdns.cli.main import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "heavy = {'aiohttp', 'kubernetes', 'msgspec', 'yaml'} & sys.modules.keys()\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"  {name} " in done.stdout for name in COMMANDS)
