"""Lists of nftables: names, and rules by chain."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from kdns.errors import ApplyError
from kdns.netlink.io import nftables, xtables
from kdns.netlink.protocol import attribute

T = TypeVar("T")


class Kernel:
    """Its dumps have one object of table nat, named "kept", or this error."""

    def __init__(self, error: int) -> None:
        self.error = error

    def dump(self, _kind: int, _body: bytes, decode: Callable[[bytes], T]) -> list[T]:
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return [decode(self._object("kept"))]

    def _object(self, name: str) -> bytes:
        """As a chain and as a rule: attributes 1 to 3 are table and names."""
        first = attribute(1, b"nat\0")
        return bytes((2, 0, 0, 0)) + first + attribute(2, name.encode() + b"\0") + attribute(3, name.encode() + b"\0")


@pytest.mark.parametrize(
    ("read", "wanted"),
    [
        (lambda: nftables.nft_chains("IPv4"), {"nat": ["kept"]}),
        (lambda: nftables.rule_counts("IPv4", "nat"), {"kept": 1}),
        (lambda: xtables.table_content("nft", "IPv4", "nat").rules, {"kept": 1}),
    ],
)
def test_lists(read: Callable[[], object], wanted: object, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(0)

    @contextmanager
    def requests(_protocol: int) -> Iterator[Kernel]:
        yield kernel

    monkeypatch.setattr(nftables, "Requests", requests)
    assert read() == wanted
    kernel.error = errno.ENOENT
    assert not read()
    kernel.error = errno.EPERM
    with pytest.raises(ApplyError, match="nftables cannot be read: Operation not permitted"):
        read()
