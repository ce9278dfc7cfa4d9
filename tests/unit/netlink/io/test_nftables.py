"""Lists of nftables that change while they are read: any transaction of any program interrupts them."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from kdns.errors import ApplyError
from kdns.netlink.io import nftables, xtables
from kdns.netlink.io.requests import InterruptedDumpError
from kdns.netlink.protocol import attribute

T = TypeVar("T")


class Kernel:
    """Its dumps have one object of table nat, named "kept", and as many as `interruptions` of them are interrupted."""

    def __init__(self, interruptions: int) -> None:
        self.interruptions = interruptions

    def dump(self, _kind: int, _body: bytes, decode: Callable[[bytes], T]) -> list[T]:
        if self.interruptions:
            self.interruptions -= 1
            raise InterruptedDumpError(errno.EINTR, "the list changed while it was read")
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
        (lambda: xtables.nft_content("IPv4", "nat").rules, {"kept": 1}),
    ],
)
def test_an_interrupted_list_is_read_again(
    read: Callable[[], object], wanted: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(interruptions: int) -> None:
        kernel = Kernel(interruptions)

        @contextmanager
        def requests(_protocol: int) -> Iterator[Kernel]:
            yield kernel

        monkeypatch.setattr(nftables, "requests", requests)

    given(3)
    assert read() == wanted
    given(1_000)
    with pytest.raises(ApplyError, match="change all the time"):
        read()
