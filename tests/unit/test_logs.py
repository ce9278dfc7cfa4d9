"""What a log line holds, and what it must not."""

from __future__ import annotations

import io

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
