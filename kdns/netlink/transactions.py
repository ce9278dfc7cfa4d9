"""Transactions of nftables, which the kernel reports to a netlink group: their messages and authors, and filters.

The messages of a transaction are sent before it returns to its caller, and come together; its end (NFT_MSG_NEWGEN)
names its process.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from kdns.netlink import uapi
from kdns.netlink.protocol import NFGENMSG, Message, attributes, big_endian, messages, text_attribute, text_of

_KIND_AT: Final = 4
_PORT_AT: Final = 12
_ATTRIBUTES_AT: Final = 20
_PORT: Final = struct.Struct("=I")
_LOAD_WORD, _LOAD_HALF, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x28, 0x15, 0x06
_ALL: Final = 0xFFFFFFFF

Instruction: TypeAlias = tuple[int, int, int, int]
"""One instruction of a socket filter: code, jumps if true and if false, operand."""


class Author(NamedTuple):
    """The process that carried out a transaction, and the port of its netlink socket.

    The port is the process's id in its own PID namespace, unless another socket had that one already.
    """

    process: str
    pid: int
    port: int

    def __str__(self) -> str:
        return f"by {self.process} (process {self.pid})"


def changes_table(name: str) -> Callable[[Message], bool]:
    """Returns whether a message changes this table, in whatever address family."""
    table = name.encode() + b"\0"  # the first attribute of every object is the name of its table
    return lambda message: attributes(message.body, NFGENMSG.size).get(uapi.NFTA_TABLE_NAME) == table


class TransactionReader:
    """Reads the messages of all transactions, and finds those with a message for which `matches` is true.

    What comes from the netlink ports `passed_over` is not looked at.
    """

    def __init__(self, matches: Callable[[Message], bool], passed_over: Collection[int] = ()) -> None:
        self.is_match = False
        """Whether a message of the transaction whose end has not come yet matches."""
        self.has_others = False
        """Whether a transaction without a match has ended since this was set to False."""
        self._matches, self._passed_over = matches, passed_over

    def read(self, buffer: bytes) -> Iterator[Author]:
        """Yields the authors of matching transactions that end in this datagram."""
        if self._passed_over and _PORT.unpack_from(buffer, _PORT_AT)[0] in self._passed_over:
            self.is_match = False
            return
        for message in messages(buffer):
            if message.kind >> 8 != uapi.NFNL_SUBSYS_NFTABLES:
                continue
            if message.kind & 0xFF == uapi.NFT_MSG_NEWGEN:
                if self.is_match:
                    row = attributes(message.body, NFGENMSG.size)
                    name = text_of(row.get(uapi.NFTA_GEN_PROC_NAME, b""))
                    yield Author(name, big_endian(row.get(uapi.NFTA_GEN_PROC_PID, b"")), message.port)
                self.has_others |= not self.is_match
                self.is_match = False
            elif not self.is_match:
                self.is_match = self._matches(message)


def socket_filter(ports: Iterable[int], table: str) -> tuple[Instruction, ...]:
    """Returns a filter that drops datagrams from these ports; with `table` see `_table_filter`."""
    dropped: list[Instruction] = []
    for port in ports:
        (loaded,) = struct.unpack(">I", _PORT.pack(port))  # the filter loads in network byte order
        dropped += ((_LOAD_WORD, 0, 0, _PORT_AT), (_JUMP_IF_EQUAL, 0, 1, loaded), (_RETURN, 0, 0, 0))
    return (*dropped, *(_table_filter(table) if table else ((_RETURN, 0, 0, _ALL),)))


def _table_filter(name: str) -> tuple[Instruction, ...]:
    """Returns a filter for datagrams that begin with this table, and the ends of all transactions."""
    (end,) = struct.unpack(">H", struct.pack("=H", uapi.NFNL_SUBSYS_NFTABLES << 8 | uapi.NFT_MSG_NEWGEN))
    first = text_attribute(uapi.NFTA_TABLE_NAME, name)
    words = struct.unpack(f">{len(first) // 4}I", first)
    accept = 2 * len(words)
    compared = (
        row
        for at, word in enumerate(words)
        for row in (
            (_LOAD_WORD, 0, 0, _ATTRIBUTES_AT + 4 * at),
            (_JUMP_IF_EQUAL, 0, accept - 2 * at - 1, word),
        )
    )
    return (
        (_LOAD_HALF, 0, 0, _KIND_AT),
        (_JUMP_IF_EQUAL, accept, 0, end),
        *compared,
        (_RETURN, 0, 0, _ALL),
        (_RETURN, 0, 0, 0),
    )
