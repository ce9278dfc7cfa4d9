"""The pages are a site without a broken link: every page is in a menu, and what it refers to is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_site_is_made_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    doctrees, site = tmp_path / "doctrees", tmp_path / "site"
    options = ["-q", "-W", "--keep-going", "-d", str(doctrees), "-c", "docs"]
    command = [sys.executable, "-m", "sphinx", *options, ".", str(site)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert made.stderr == ""
    assert made.returncode == 0
    for page in ("docs/index", "docs/tasks/why", "docs/directives/kubernetes", "README", "deploy/README"):
        assert (site / f"{page}.html").is_file()
