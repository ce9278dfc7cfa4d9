"""Signals to a command that has just begun, while it imports what it needs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kdns_process import DEADLINE_S


@pytest.fixture
def command(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A `kdns serve` whose imports have just begun: it acts on signals, and has read nothing yet."""
    (tmp_path / "Corefile").write_text(".:0 {\n bind 127.0.0.1\n whoami\n}\n")
    words = [sys.executable, "-m", "kdns", "serve", "--pidfile", "pid"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as begun:
        status, deadline_s = Path(f"/proc/{begun.pid}/status"), time.monotonic() + DEADLINE_S
        while not caught(status.read_text()) >> (signal.SIGTERM - 1) & 1:
            assert time.monotonic() < deadline_s
        yield begun
        begun.kill()


def caught(status: str) -> int:
    """The signals for which the process has handlers, a bit for each (proc_pid_status(5), SigCgt)."""
    return int(status.partition("SigCgt:")[2].split()[0], 16)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_without_a_word(command: subprocess.Popen[str], number: signal.Signals) -> None:
    command.send_signal(number)
    assert command.communicate(timeout=DEADLINE_S)[0] == ""
    assert command.returncode == -number


def test_sigusr1_does_not_end_it(command: subprocess.Popen[str], tmp_path: Path) -> None:
    command.send_signal(signal.SIGUSR1)
    assert command.stdout
    assert "ready\n" in iter(command.stdout.readline, "")
    assert (tmp_path / "pid").read_text() == f"{command.pid}\n"
    command.send_signal(signal.SIGUSR1)
    command.terminate()
    assert command.wait(DEADLINE_S) == 0
