"""What `make release` makes: from the sdist wheels with the pages of `kdns docs` and the manual pages, and the rest."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import kdns
from kdns.cli.commands.docs import pages
from tools import release
from tools.reference.files import files

PROJECT = Path(__file__).parents[3]


@pytest.mark.release
def test_a_release_is_whole(tmp_path: Path) -> None:
    if not (PROJECT / ".git").exists():
        pytest.skip("needs a checkout of the project")
    dist = tmp_path / "dist"
    release.main(dist)
    wheels = sorted(dist.glob("*.whl"))
    assert wheels[-1].name == f"kdns-{kdns.__version__}-py3-none-any.whl"
    for suffix in (".tar.gz", ".tgz", ".cdx.json"):
        assert len([*dist.glob(f"kdns-*{suffix}")]) == 1, suffix
    for wheel in wheels:
        names = ZipFile(wheel).namelist()
        packaged = {name.removeprefix("kdns/pages/") for name in names if name.startswith("kdns/pages/")}
        assert {str(page.file.relative_to(PROJECT)) for page in pages().values()} | {"docs/index.md"} == packaged
        manual = {Path(name).name for name in names if "/share/man/man1/" in name}
        assert manual == {Path(name).name for name in files() if name.endswith(".1")}
    ZipFile(wheels[-1]).extractall(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "kdns", "docs", "serve"]
    shown = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout == (tmp_path / "kdns/pages/docs/serve.md").read_text(encoding="utf-8")
