"""The pages are a site without a broken link: every page is in a menu, and what it refers to is there."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.release  # tests/unit/cli/test_docs.py has the links
def test_the_site_is_made_without_a_warning(tmp_path: Path) -> None:
    """All pages are read and their references resolved; `make docs` writes the HTML too."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    options = ["-q", "-W", "--keep-going", "-b", "dummy", "-d", str(tmp_path / "doctrees"), "-c", "docs"]
    command = [sys.executable, "-m", "sphinx", *options, ".", str(tmp_path / "site")]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert (made.returncode, made.stderr) == (0, "")
