"""Starts the tests of inside/ on other kernels, which have what this machine's may lack: several files share a boot.

By hand, also files of tests/netns/inside, with what else pytest takes; the kernel is user_mode or qemu, its options
are the kernel's own, and DATAPLANE is one of netns/inside/dataplanes.py, in user mode ipvs or iptables-legacy:

    KERNEL=qemu KERNEL_OPTIONS=nopti python tests/kernel/test_other_kernel.py tests/netns/inside/test_rolling.py -k none
"""

import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Final

import apart
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
FOR_RELEASES: Final = {*QEMU, "test_mode_changes_ipvs.py", "test_ipvs_agreement.py"}
"""Files of boots of their own: user mode has SCTP in mode iptables, and tests/netns no IPv6 and changes of modes.

Random Services take long in user mode, where test_ipvs_packets.py has the tables.
"""
FILES: Final = sorted((*INSIDE.glob("test_*.py"), NETNS / "test_without_ipv6.py"))
BOOTS: Final = [
    *(pytest.param([file], marks=pytest.mark.release) for file in FILES if file.name in FOR_RELEASES),
    [file for file in FILES if file.name not in FOR_RELEASES],
]
"""Files that share a boot."""


def name_of(files: list[Path]) -> str:
    return "+".join(file.stem.removeprefix("test_") for file in files)


@pytest.mark.parametrize("files", BOOTS, ids=name_of)
def test_inside(files: list[Path], tmp_path: Path, subtests: pytest.Subtests, pytestconfig: pytest.Config) -> None:
    kernel = qemu if files[0].name in QEMU else user_mode
    if reason := kernel.missing():
        pytest.skip(reason)
    arguments = ["-m", pytestconfig.option.markexpr]
    ended = run(kernel, files, arguments, tmp_path, QEMU.get(files[0].name, ""), TIMEOUT_S)
    print(output := f"{ended.output}\n--- its console:\n{ended.console}")
    apart.tell(tmp_path / "said", [(file, dataplane(kernel)) for file in files], subtests, output)
    assert ended.status == os.EX_OK


def dataplane(kernel: ModuleType) -> str:
    return os.environ.get("DATAPLANE", "nftables" if kernel is qemu else "ipvs")


def run(
    kernel: ModuleType, files: list[Path], arguments: list[str], folder: Path, options: str, timeout_s: float
) -> machine.Ended:
    env = {
        "PYTHONPATH": f"{INSIDE}:{NETNS}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PROBE_TIMEOUT_S": "1",
        "PROTOCOLS": "TCP UDP SCTP",
        "HYPOTHESIS_STORAGE_DIRECTORY": "/run/tmp/hypothesis",
    }
    command = [
        *("env", *(f"{name}={value}" for name, value in env.items())),
        *apart.command(Path("/run/said"), "/run/netns", [(file, dataplane(kernel)) for file in files]),
        *("-c", str(INSIDE / "pytest.ini"), "-p", "world_fixtures", "--durations=0", *arguments),
    ]
    ended: machine.Ended = kernel.run(command, folder, options=options, timeout_s=timeout_s)
    return ended


def main(arguments: list[str]) -> int:
    kernel = {"qemu": qemu, "user_mode": user_mode}[os.environ.get("KERNEL", "user_mode")]
    if reason := kernel.missing():
        raise SystemExit(reason)
    files = [Path(argument).resolve() for argument in arguments if Path(argument).exists()]
    rest = [argument for argument in arguments if not Path(argument).exists()]
    with tempfile.TemporaryDirectory() as folder:
        ended = run(kernel, files, rest, Path(folder), os.environ.get("KERNEL_OPTIONS", ""), 3600)
    print(ended.output, ended.console)
    return 1 if ended.status is None else ended.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
