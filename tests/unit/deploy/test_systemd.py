"""The units of deploy/systemd/: systemd takes them, they are as confined as they say, and their commands exist."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdns.cli.main import main

UNITS = sorted((Path(__file__).parents[3] / "deploy" / "systemd").glob("*.service"))
INSTALLED = "/usr/local/bin/kdns"
EXPOSURE = {"kdns.service": 20, "kdns-proxy.service": 35}
"""Ten times the exposure level of `systemd-analyze security`, from 0 to 100: MEDIUM begins at 50."""


@pytest.fixture(params=UNITS, ids=lambda path: path.name)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit with the program of this environment."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not here: it is in the package systemd")
    given: Path = request.param
    path = tmp_path / given.name
    path.write_text(given.read_text().replace(INSTALLED, str(Path(sys.executable).parent / "kdns")))
    return path


def analyzed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


def test_systemd_takes_it(unit: Path) -> None:
    done = analyzed("verify", str(unit))
    assert (done.returncode, done.stderr) == (0, "")


def test_it_is_confined(unit: Path) -> None:
    done = analyzed("security", "--offline=true", f"--threshold={EXPOSURE[unit.name]}", str(unit))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_its_commands_are_those_of_kdns(path: Path) -> None:
    commands = re.findall(rf"^Exec\w+={INSTALLED} (.+)$", path.read_text(), re.MULTILINE)
    assert commands
    for command in commands:
        name, *rest = command.split()
        shown = CliRunner().invoke(main, [name, "--help"])
        assert shown.exit_code == 0
        assert all(word in shown.output for word in rest if word.startswith("-"))
