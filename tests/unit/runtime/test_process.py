"""This machine, as Go names it."""

from __future__ import annotations

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
