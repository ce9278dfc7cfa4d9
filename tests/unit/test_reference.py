"""What tools/reference makes of the code is what the project has, and is well formed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from kdns.cli.main import COMMANDS
from tools.reference.files import ROOT, files

FILES = files()
MANUAL_PAGES = [name for name in FILES if name.endswith(".1")]


@pytest.mark.parametrize("name", FILES)
def test_the_reference_is_that_of_the_code(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == FILES[name], "run `make reference`"


def test_nothing_else_is_in_its_folders() -> None:
    there = {
        str(path.relative_to(ROOT)) for folder in ("docs/man", "docs/reference") for path in (ROOT / folder).iterdir()
    }
    assert there - FILES.keys() == set()


def test_each_command_has_a_manual_page() -> None:
    assert set(MANUAL_PAGES) == {"docs/man/kdns.1", *(f"docs/man/kdns-{name}.1" for name in COMMANDS)}


@pytest.mark.parametrize("name", MANUAL_PAGES)
def test_mandoc_accepts_a_manual_page(name: str) -> None:
    if not shutil.which("mandoc"):
        pytest.skip("mandoc is not here: tests/install-debian-packages installs it")
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", ROOT / name], capture_output=True, text=True, check=False
    )
    warnings = (done.stdout + done.stderr).splitlines()
    assert [line for line in warnings if "missing date" not in line] == []  # a page of the code has no date
    shown = subprocess.run(["mandoc", "-T", "utf8", ROOT / name], capture_output=True, text=True, check=True).stdout
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES"):
        assert f"{heading[0]}\b{heading[0]}" in shown
