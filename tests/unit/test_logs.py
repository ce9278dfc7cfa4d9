"""What a log line holds, what it must not, and what happens when nobody reads it."""

import io
import json
import logging
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, TextIO

import pytest

from kdns import logs


class Stream(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_stack_is_logged_without_local_variables(*, is_terminal: bool) -> None:
    stream = Stream(is_terminal=is_terminal)
    logs.configure("info", stream)

    def ask(token: str) -> None:
        if token:
            raise ValueError("no such server")

    try:
        ask("emasesnepo"[::-1])  # the line itself is in the stack
    except ValueError:
        logs.get("test").exception("reflector failed")
    written = stream.getvalue()
    assert "no such server" in written
    assert "ask" in written
    assert "opensesame" not in written


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """A pipe for logs: the descriptor to read from, and the stream to write to."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        yield reading, stream
        logs.configure("info", io.StringIO())  # ends the thread that writes to the pipe
    os.close(reading)


def lines_of(descriptor: int, last: str) -> list[dict[str, Any]]:
    """The lines up to the one whose event is `last`."""
    read = b""
    while f'"{last}"'.encode() not in read or not read.endswith(b"\n"):
        assert select.select([descriptor], [], [], 60)[0], f"no line {last!r}"
        read += os.read(descriptor, 1 << 16)
    return [json.loads(line) for line in read.splitlines()]


def test_lines_are_written_in_their_order(pipe: tuple[int, TextIO]) -> None:
    reading, stream = pipe
    logs.configure("info", stream)
    for number in range(100):
        logs.get("test").info("event", number=number)
    logs.get("test").info("end")
    assert [line.get("number") for line in lines_of(reading, "end")] == [*range(100), None]


def test_who_logs_into_a_full_pipe_does_not_wait_and_what_was_lost_is_counted(pipe: tuple[int, TextIO]) -> None:
    reading, stream = pipe
    logs.configure("info", stream)
    count = 3 * logs.MAX_WAITING_BYTES // 1000

    def write() -> None:
        for number in range(count):
            logs.get("test").info("event", number=number, text="x" * 1000)

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    writing.join(60)
    assert not writing.is_alive()
    logs.configure("info", stream)  # again, as after a change of the configuration: it does not wait either
    lost = logs.lost_lines()
    assert 0 < lost < count
    *written, told = lines_of(reading, "log lines lost")
    assert told["count"] == lost
    numbers = [line["number"] for line in written]
    assert (len(numbers), numbers) == (count - lost, sorted(set(numbers))), "the others, in order"
    logs.get("test").info("end")
    assert len(lines_of(reading, "end")) == 1


def test_without_a_reader_lines_are_lost_and_nothing_fails() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        logs.configure("info", stream)
        os.close(reading)
        logs.get("test").info("event")
        deadline_s = time.monotonic() + 60
        while not logs.lost_lines():
            assert time.monotonic() < deadline_s
            time.sleep(0.001)
        logs.configure("info", io.StringIO())


def test_a_process_ends_although_nobody_reads_its_log() -> None:
    code = """
from kdns import logs
logs.EXIT_S = 0.1
logs.configure()
for _ in range(2000):
    logs.get("test").info("x" * 1000)
"""
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as process:
        assert process.wait(60) == 0


def test_what_libraries_log_is_a_line_like_the_others(pipe: tuple[int, TextIO]) -> None:
    reading, stream = pipe
    logs.configure("info", stream)
    logging.getLogger("asyncio").error("Task %s failed", "t")
    (line,) = lines_of(reading, "Task t failed")
    assert (line["level"], line["source"]) == ("error", "asyncio")


def test_a_terminal_gets_json_where_that_is_wanted() -> None:
    stream = Stream(is_terminal=True)
    logs.configure("info", stream, format="json")
    logs.get("test").info("rules synced", services=3)
    found = json.loads(stream.getvalue())
    assert (found["services"], list(found)[:3]) == (3, ["timestamp", "level", "event"])
    logs.configure("info", Stream(is_terminal=False))


def test_a_file_gets_text_where_that_is_wanted() -> None:
    stream = Stream(is_terminal=False)
    logs.configure("info", stream, format="text")
    logs.get("test").info("rules synced", services=3)
    assert re.fullmatch(r"\d{4}-\S+Z \[info     \] rules synced +services=3 source=test\n", stream.getvalue())
    logs.configure("info", Stream(is_terminal=False))


@pytest.mark.parametrize("level", ["info", "error"])
def test_lines_of_directives_are_corednss_or_objects(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        for wanted in ("", "text", "json"):
            logs.configure(level, Stream(is_terminal=False), format=wanted)
            logs.print_directive_line("warning", "query failed", "plugin/errors: 2 a.\nb. A: x", {"error": "x"})
    finally:
        logs.configure("info", Stream(is_terminal=False))
    plain, text, as_json = capsys.readouterr().out.splitlines()
    assert plain == text == "[WARNING] plugin/errors: 2 a.\\nb. A: x", "one line, at any --log-level"
    found = json.loads(as_json)
    assert list(found)[:3] == ["timestamp", "level", "event"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", found.pop("timestamp"))
    assert found == {"error": "x", "line": "plugin/errors: 2 a.\nb. A: x", "event": "query failed", "level": "warning"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tab\tand \u00e9", "tab\tand \u00e9"),
        ("\x1b]0;x\x07\x1b[2J", r"\x1b]0;x\x07\x1b[2J"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("a\r\nb\u2028c", r"a\r\nb\u2028c"),
        ("\u202eoff\u2069", r"\u202eoff\u2069"),
        ("name\udcff", r"name\udcff"),
    ],
)
def test_what_others_wrote_controls_no_terminal(text: str, shown: str) -> None:
    assert logs.one_line(text) == shown
    stream = Stream(is_terminal=True)
    logs.configure("info", stream)
    logs.get("test").info(f"event {text}", fact=text)
    logs.configure("info", Stream(is_terminal=False))
    written = re.sub(r"\x1b\[\d*m", "", stream.getvalue())
    assert (written.count("\n"), f"event {shown}" in written, logs.one_line(written[:-1])) == (1, True, written[:-1])
