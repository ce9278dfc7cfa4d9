"""Runs files of tests one after the other, each in a process, a network namespace and mounts of its own.

usage: apart.py REPORTS COVERED FILE=DATAPLANE,… PYTEST_ARGUMENT …

Each process is a fork of one that has imported what they share. COVERED is a folder that each has empty. The results of
each file's tests are in the folder REPORTS, as JUnit XML. The status is 1 if a file failed or had no tests.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

Run = tuple[Path, str]
"""A file, and the dataplane that its tests run over."""

_CLONE_NEWNS, _CLONE_NEWNET, _PR_SET_PDEATHSIG = 0x20000, 0x40000000, 1
_MOUNT: Final = 'mount --make-rprivate / && mkdir -p "$0" && exec mount -t tmpfs tmpfs "$0"'
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def command(reports: Path, covered: str, runs: Iterable[Run], *arguments: str) -> list[str]:
    named = ",".join(f"{file}={dataplane}" for file, dataplane in runs)
    return [sys.executable, __file__, str(reports), covered, named, *arguments]


def tell(reports: Path, runs: Sequence[Run], subtests: pytest.Subtests, output: str) -> None:
    """Let each test that ran be a subtest, and fail if a file has no report."""
    for run in runs:
        path = _report(reports, run)
        assert path.exists(), f"{run}: {output}"
        for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314 - written by the process above
            with subtests.test(f"{run[0].name}::{case.get('name')} {run[1]}", seconds=case.get("time")):
                for kind in ("failure", "error"):
                    for what in case.findall(kind):
                        pytest.fail(
                            "\n".join((what.text or "", *(each.text or "" for each in case.findall("system-*"))))
                        )
                for what in case.findall("skipped"):
                    pytest.skip(what.get("message") or "")


def _report(reports: Path, run: Run) -> Path:
    return reports / f"{run[0].stem}-{run[1]}.xml"


def main(reports: str, covered: str, named: str, *arguments: str) -> int:
    import small_cluster  # noqa: F401, PLC0415 - what most files need, once

    import kdns.proxy.takeover.io.modes  # noqa: F401, PLC0415

    runs = [(Path(file), dataplane) for each in named.split(",") for file, _, dataplane in [each.partition("=")]]
    statuses = [_run(run, Path(reports), covered, arguments) for run in runs]
    return int(any(statuses))


def _run(run: Run, reports: Path, covered: str, arguments: Sequence[str]) -> int:
    parent = os.getpid()
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    if _LIBC.unshare(_CLONE_NEWNS | _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["sh", "-c", _MOUNT, covered], check=True)
    os.environ["DATAPLANE"] = run[1]
    code = pytest.main([*arguments, f"--junitxml={_report(reports, run)}", str(run[0])])
    # a module that skips itself, as one about recorded cases that are not there, has no tests
    sys.exit(0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
