"""Files that directives read again and again."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from kdns.aio.dns.files import WatchedFile
from kdns.errors import CorefileError


async def test_the_loop_goes_on_while_a_file_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("192.0.2.1 web\n", encoding="utf-8")
    threads: list[int] = []
    received: list[str] = []

    def parse(text: str) -> str:
        threads.append(threading.get_ident())
        return text.upper()

    file = WatchedFile("hosts file", str(path), 5.0, received.append, parse)
    assert received == []
    await file.begin()
    assert received == ["192.0.2.1 WEB\n"]
    assert threads != [threading.get_ident()]


async def test_a_text_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("", encoding="utf-8")

    def parse(_text: str) -> str:
        raise CorefileError(str(path), 1, "", "no hosts")

    with pytest.raises(CorefileError, match="no hosts"):
        await WatchedFile("hosts file", str(path), 5.0, lambda _: None, parse).begin()


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hosts")
    with pytest.raises(CorefileError, match="the hosts file cannot be read: it is no regular file"):
        WatchedFile("hosts file", str(tmp_path / "hosts"), 5.0, lambda _: None, is_optional=True)
