"""Starts the tests of inside/ on Debian's own kernel, which has what this machine's may lack: each file boots it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import machine
import pytest

INSIDE = Path(__file__).parent / "inside"
NETNS = Path(__file__).parents[1] / "netns" / "inside"
TIMEOUT_S = 900
"""For a machine that has much else to do; it takes a quarter of a minute otherwise."""
OPTIONS = {"test_without_ipv6.py": "ipv6.disable=1"}
"""What the kernel is told for some files."""
FILES = sorted(INSIDE.glob("test_*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_inside(tmp_path: Path, file: Path) -> None:
    if reason := machine.missing():
        pytest.skip(reason)
    env = {"PYTHONPATH": f"{INSIDE}:{NETNS}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PROBE_TIMEOUT_S": "2"}
    command = [
        *("env", *(f"{name}={value}" for name, value in env.items())),
        *(sys.executable, "-m", "pytest", "-c", str(INSIDE / "pytest.ini"), "-p", "world_fixtures", str(file)),
    ]
    ended = machine.run(command, tmp_path, options=OPTIONS.get(file.name, ""), timeout_s=TIMEOUT_S)
    assert ended.status == os.EX_OK, f"{ended.output}\n--- its console:\n{ended.console}"
