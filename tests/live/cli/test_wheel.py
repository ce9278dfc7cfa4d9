"""The wheel: with the modules it has the pages of `kdns docs` and the manual pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from kdns.cli.commands.docs import pages
from tools.reference.files import files

PROJECT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the checkout: its tracked files, as they are now."""
    if not (PROJECT / ".git").exists():
        pytest.skip("needs a checkout of the project")
    folder = tmp_path_factory.mktemp("wheel")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        copy = folder / "source" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((PROJECT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(folder / "source")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No matching distribution found" in built.stderr:
        pytest.skip("pip has no package index here")
    assert built.returncode == 0, built.stderr
    (made,) = folder.glob("*.whl")
    return made


def test_it_has_the_pages_and_the_manual(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    packaged = {name.removeprefix("kdns/pages/") for name in names if name.startswith("kdns/pages/")}
    assert {str(page.file.relative_to(PROJECT)) for page in pages().values()} | {"docs/index.md"} == packaged
    manual = {Path(name).name for name in names if "/share/man/man1/" in name}
    assert manual == {Path(name).name for name in files() if name.endswith(".1")}


def test_it_shows_its_own_pages(wheel: Path, tmp_path: Path) -> None:
    ZipFile(wheel).extractall(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "kdns", "docs", "serve"]
    shown = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout == (tmp_path / "kdns/pages/docs/serve.md").read_text(encoding="utf-8")
