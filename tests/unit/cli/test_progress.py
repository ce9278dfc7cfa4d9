"""What is shown of a long start: a spinner on a terminal, lines elsewhere, and never on the line of something else."""

import os
import pty
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kdns.cli import progress
from kdns.cli.progress import Progress

DEADLINE_S = 60.0


@contextmanager
def standard_error(monkeypatch: pytest.MonkeyPatch, descriptor: int) -> Iterator[None]:
    with os.fdopen(descriptor, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        yield


def test_a_terminal_has_a_spinner_that_makes_room_for_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    reading, writing = pty.openpty()
    shown = b""

    def read_until(wanted: bytes) -> None:
        nonlocal shown
        while wanted not in shown:
            shown += os.read(reading, 1024)

    with standard_error(monkeypatch, writing), Progress() as shown_progress:
        shown_progress.show("applying manifests, 50 of 100 objects")
        read_until(b"\r\x1b[K| applying manifests, 50 of 100 objects\r")
        shown_progress.warn("a.yaml:1: not YAML")
        read_until(b"\r\x1b[KWarning: a.yaml:1: not YAML\r\n")
        read_until(b"\r\x1b[K/ applying")
        shown_progress.show("")
        shown_progress.note("a.yaml: service/a created")
        read_until(b"\r\x1b[Ka.yaml: service/a created\r\n")
    os.close(reading)


def test_a_file_has_lines_without_control_characters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.01)
    path = tmp_path / "log"
    with standard_error(monkeypatch, os.open(path, os.O_CREAT | os.O_WRONLY)), Progress() as shown:
        shown.show("reading manifests")
        deadline_s = time.monotonic() + DEADLINE_S
        while path.read_text().count("\n") < 2:
            assert time.monotonic() < deadline_s
    assert set(path.read_text().splitlines()) == {"reading manifests"}
