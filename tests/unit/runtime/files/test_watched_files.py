"""Files that directives read again and again."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from kdns.errors import CorefileError
from kdns.runtime.files import bounded
from kdns.runtime.files import watched as files
from kdns.runtime.files.watched import WatchedFile


async def test_the_loop_goes_on_while_a_file_is_read_and_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hosts"
    path.write_text("192.0.2.1 web\n", encoding="utf-8")
    threads: list[int] = []
    received: list[str] = []

    def parse(text: str) -> str:
        threads.append(threading.get_ident())
        return text.upper()

    def read_text(*args: Any) -> str:
        threads.append(threading.get_ident())
        return bounded.bounded_text(*args)

    monkeypatch.setattr(files, "bounded_text", read_text)

    file = WatchedFile("hosts file", str(path), received.append, parse)
    assert received == []
    await file.begin()
    assert received == ["192.0.2.1 WEB\n"]
    assert len(threads) == 2
    assert threading.get_ident() not in threads


async def test_a_text_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("", encoding="utf-8")

    def parse(_text: str) -> str:
        raise CorefileError(str(path), 1, "", "no hosts")

    with pytest.raises(CorefileError, match="no hosts"):
        await WatchedFile("hosts file", str(path), lambda _: None, parse).begin()


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hosts")
    with pytest.raises(CorefileError, match="the hosts file cannot be read: it is not a regular file"):
        WatchedFile("hosts file", str(tmp_path / "hosts"), lambda _: None, is_optional=True)


def test_a_file_that_the_loop_reads_is_small(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("x" * (files.SMALL_CHARACTERS_MAX + 1))
    with pytest.raises(CorefileError, match="the key cannot be read: too large, expected at most 65536 characters"):
        WatchedFile("key", str(tmp_path / "key"), lambda _: None)
