"""Signals to a command that has just begun, while it imports what it needs."""

import io
import os
import pty
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
    with subprocess.Popen(
        words, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as begun:
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


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGHUP])
def test_a_reload_signal_does_not_end_it(
    command: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    command.send_signal(number)
    assert command.stdout
    assert "ready\n" in iter(command.stdout.readline, "")
    assert (tmp_path / "pid").read_text() == f"{command.pid}\n"
    command.send_signal(number)
    command.terminate()
    assert command.wait(DEADLINE_S) == 0


def test_a_hangup_ends_it_where_its_terminal_was_closed_and_reloads_before(tmp_path: Path) -> None:
    corefile = tmp_path / "Corefile"
    corefile.write_text(".:0 {\n bind 127.0.0.1\n whoami\n}\n")
    terminal, end = pty.openpty()
    words = ["setsid", "--ctty", sys.executable, "-m", "kdns", "serve"]
    with subprocess.Popen(words, cwd=tmp_path, stdin=end, stdout=end, stderr=end) as begun:
        os.close(end)
        with os.fdopen(terminal, "rb", buffering=0) as screen:
            read_until(screen, b"ready")
            begun.send_signal(signal.SIGHUP)
            read_until(screen, b"corefile reloaded")
        assert begun.wait(DEADLINE_S) == 0


def read_until(screen: io.FileIO, wanted: bytes) -> None:
    """Read what a program shows until it has shown this."""
    shown = b""
    while wanted not in shown:
        shown += screen.read(1024) or b""
