"""Transactions of nftables, which the kernel reports to a netlink group: their authors, and filters of messages."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from kdns.netlink import uapi
from kdns.netlink.protocol import NFGENMSG, Message, attributes, big_endian, text_attribute, text_of

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


def author_of(end: Message) -> Author:
    row = attributes(end.body, NFGENMSG.size)
    name = text_of(row.get(uapi.NFTA_GEN_PROC_NAME, b""))
    return Author(name, big_endian(row.get(uapi.NFTA_GEN_PROC_PID, b"")), end.port)


def changes_table(name: str) -> Callable[[Message], bool]:
    """A predicate for messages that change this table, in whatever address family."""
    table = name.encode() + b"\0"  # the first attribute of every object is the name of its table
    return lambda message: attributes(message.body, NFGENMSG.size).get(uapi.NFTA_TABLE_NAME) == table


def socket_filter(ports: Iterable[int], table: str) -> tuple[Instruction, ...]:
    """Drops datagrams from these ports, and with `table` those that begin with another table.

    The ends of transactions in other tables are not dropped.
    """
    dropped: list[Instruction] = []
    for port in ports:
        (loaded,) = struct.unpack(">I", _PORT.pack(port))  # the filter loads in network byte order
        dropped += ((_LOAD_WORD, 0, 0, _PORT_AT), (_JUMP_IF_EQUAL, 0, 1, loaded), (_RETURN, 0, 0, 0))
    return (*dropped, *(_table_filter(table) if table else ((_RETURN, 0, 0, _ALL),)))


def _table_filter(name: str) -> tuple[Instruction, ...]:
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
