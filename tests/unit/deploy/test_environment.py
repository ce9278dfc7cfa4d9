"""What `make up` shows while pip installs: steps on a terminal, a few lines without control characters elsewhere."""

import subprocess
from pathlib import Path

import pytest

from tools.environment import ERASE, main, progress

PIP = [
    "Obtaining file:///kdns\n",
    *[f"Collecting package-{number}>=1 (from kdns==0.1.0)\n  Using cached it\n" for number in range(1, 31)],
    "Building wheels for collected packages: kdns\nBuilding wheels for collected packages: kdns\n",
    "Installing collected packages: one, two\n",
    "Successfully installed one-1 two-2\n",
]
LINES = "".join(PIP).splitlines(keepends=True)


def test_a_terminal_shows_each_package_in_place_of_the_one_before() -> None:
    shown = list(progress(LINES, 75, is_terminal=True))
    assert shown[0] == f"{ERASE}  package 1 of 75: package-1>=1"
    assert shown[-3:] == [
        f"{ERASE}  building wheels for collected packages",
        f"{ERASE}  installing collected packages",
        ERASE,
    ]
    assert len(shown) == 33


def test_a_file_has_a_few_lines() -> None:
    assert list(progress(LINES, 75, is_terminal=False)) == [
        "  package 25 of 75: package-25>=1\n",
        "  building wheels for collected packages\n",
        "  installing collected packages\n",
    ]


def test_what_venv_says_of_a_failure_is_the_last_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Debian's Python has no ensurepip without the package python3-venv, and venv says so."""

    def failing(argv: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(argv, 1)

    monkeypatch.setattr(subprocess, "run", failing)
    assert main(tmp_path) == 1
