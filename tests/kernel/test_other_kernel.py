"""Starts the tests of inside/ on other kernels, which have what this machine's may lack: each file boots one.

By hand, also files of tests/netns/inside, with what else pytest takes; the kernel is user_mode or qemu, its options
are the kernel's own, and DATAPLANE is one of netns/inside/dataplanes.py, in user mode ipvs or iptables-legacy:

    KERNEL=qemu KERNEL_OPTIONS=nopti python tests/kernel/test_other_kernel.py tests/netns/inside/test_rolling.py -k none
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Final

import machine
import pytest
import qemu
import user_mode

INSIDE: Final = Path(__file__).parent / "inside"
NETNS: Final = Path(__file__).parents[1] / "netns" / "inside"
TIMEOUT_S: Final = 900
"""Long, for a machine that has much else to do."""
QEMU: Final = {"test_sctp.py": "", "test_without_ipv6.py": "ipv6.disable=1"}
"""Files that need nftables, and what the kernel is told for them; all others run in user mode, which is faster."""
FILES: Final = sorted(INSIDE.glob("test_*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_inside(tmp_path: Path, file: Path) -> None:
    kernel = qemu if file.name in QEMU else user_mode
    if reason := kernel.missing():
        pytest.skip(reason)
    ended = run(kernel, [str(file)], tmp_path, QEMU.get(file.name, ""), TIMEOUT_S)
    assert ended.status == os.EX_OK, f"{ended.output}\n--- its console:\n{ended.console}"


def run(kernel: ModuleType, arguments: list[str], folder: Path, options: str, timeout_s: float) -> machine.Ended:
    """What becomes of pytest with these arguments."""
    env = {
        "PYTHONPATH": f"{INSIDE}:{NETNS}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PROBE_TIMEOUT_S": "1",
        "PROTOCOLS": "TCP UDP SCTP",
        "DATAPLANE": os.environ.get("DATAPLANE", "nftables" if kernel is qemu else "ipvs"),
        "HYPOTHESIS_STORAGE_DIRECTORY": "/run/tmp/hypothesis",
    }
    command = [
        *("env", *(f"{name}={value}" for name, value in env.items())),
        *(sys.executable, "-m", "pytest", "-c", str(INSIDE / "pytest.ini"), "-p", "world_fixtures", *arguments),
    ]
    ended: machine.Ended = kernel.run(command, folder, options=options, timeout_s=timeout_s)
    return ended


def main(arguments: list[str]) -> int:
    """Show what comes of it."""
    kernel = {"qemu": qemu, "user_mode": user_mode}[os.environ.get("KERNEL", "user_mode")]
    if reason := kernel.missing():
        raise SystemExit(reason)
    files = [str(Path(each).resolve()) if Path(each).exists() else each for each in arguments]
    with tempfile.TemporaryDirectory() as folder:
        ended = run(kernel, files, Path(folder), os.environ.get("KERNEL_OPTIONS", ""), 3600)
    print(ended.output, ended.console)
    return 1 if ended.status is None else ended.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
