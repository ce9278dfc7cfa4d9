"""This machine, as Go names it, and a process that starts again."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from kdns.runtime import process


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        ("linux", "x86_64", ("linux", "amd64")),
        ("linux", "aarch64", ("linux", "arm64")),
        ("linux", "i686", ("linux", "386")),
        ("linux", "s390x", ("linux", "s390x")),
        ("darwin", "arm64", ("darwin", "arm64")),
        ("freebsd14", "amd64", ("freebsd", "amd64")),
        ("win32", "AMD64", ("windows", "amd64")),
    ],
)
def test_the_platform(system: str, machine: str, expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr(process, "uname", lambda: SimpleNamespace(machine=machine))
    assert process.platform() == expected


PROGRAM = """
import asyncio, os, signal, sys
from kdns.runtime.process import STOP_SIGNALS, start_again, stop_event

async def until_stopped():
    async with asyncio.timeout(60):
        await stop_event().wait()

print(os.getpid(), sys.argv[1:])
if os.environ.setdefault("STARTED", "0") == "1":
    asyncio.run(until_stopped())
    print("stopped")
else:
    os.environ["STARTED"] = "1"
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    os.kill(os.getpid(), signal.SIGTERM)
    start_again()
"""


def test_a_process_starts_again_and_acts_on_a_signal_that_came_meanwhile() -> None:
    started = subprocess.Popen([sys.executable, "-c", PROGRAM, "one", "two"], stdout=subprocess.PIPE, text=True)
    output, _ = started.communicate(timeout=120)
    line = f"{started.pid} ['one', 'two']"
    assert (output.splitlines(), started.returncode) == ([line, line, "stopped"], 0)


@pytest.mark.parametrize(("status", "ending"), [(0, "status 0"), (3, "status 3"), (-9, "SIGKILL"), (-40, "signal 40")])
def test_the_ending_of_a_child(status: int, ending: str) -> None:
    assert process.ending(status) == ending
