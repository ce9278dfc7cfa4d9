"""Starts the tests of inside/ on Debian's own kernel, which has what this machine's may lack: each file boots it.

By hand, also files of tests/netns/inside, with what else pytest takes, and options of the kernel where any are wanted:

    KERNEL_OPTIONS=ipv6.disable=1 python tests/kernel/test_other_kernel.py tests/netns/inside/test_affinity.py -k again
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import machine
import pytest

INSIDE = Path(__file__).parent / "inside"
NETNS = Path(__file__).parents[1] / "netns" / "inside"
TIMEOUT_S = 900
"""Long, for a machine that has much else to do."""
OPTIONS = {"test_without_ipv6.py": "ipv6.disable=1"}
"""What the kernel is told for some files."""
FILES = sorted(INSIDE.glob("test_*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_inside(tmp_path: Path, file: Path) -> None:
    if reason := machine.missing():
        pytest.skip(reason)
    ended = run([str(file)], tmp_path, OPTIONS.get(file.name, ""), TIMEOUT_S)
    assert ended.status == os.EX_OK, f"{ended.output}\n--- its console:\n{ended.console}"


def run(arguments: list[str], folder: Path, options: str, timeout_s: float) -> machine.Ended:
    """What becomes of pytest with these arguments."""
    env = {"PYTHONPATH": f"{INSIDE}:{NETNS}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PROBE_TIMEOUT_S": "2"}
    command = [
        *("env", *(f"{name}={value}" for name, value in env.items())),
        *(sys.executable, "-m", "pytest", "-c", str(INSIDE / "pytest.ini"), "-p", "world_fixtures", *arguments),
    ]
    return machine.run(command, folder, options=options, timeout_s=timeout_s)


def main(arguments: list[str]) -> int:
    """Show what comes of it."""
    if reason := machine.missing():
        raise SystemExit(reason)
    files = [str(Path(each).resolve()) if Path(each).exists() else each for each in arguments]
    with tempfile.TemporaryDirectory() as folder:
        ended = run(files, Path(folder), os.environ.get("KERNEL_OPTIONS", ""), 3600)
    print(ended.output, ended.console)
    return 1 if ended.status is None else ended.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
