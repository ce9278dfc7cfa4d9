"""Who changes the kernel's nftables: every transaction is reported to a netlink group.

The messages of a transaction are sent before it returns to its caller, and come together; its end (NFT_MSG_NEWGEN)
names its process.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from kdns.netlink.io.protocol import NFGENMSG, Message, attribute, attributes, messages, netlink_socket, text_of
from kdns.netlink.uapi import (
    NETLINK_NETFILTER,
    NFNL_SUBSYS_NFTABLES,
    NFNLGRP_NFTABLES,
    NFT_MSG_NEWGEN,
    NFTA_GEN_PROC_NAME,
    NFTA_GEN_PROC_PID,
    NFTA_TABLE_NAME,
)

_DATAGRAM_BYTES: Final = 1 << 18
_KIND_AT: Final = 4
_PORT_AT: Final = 12
_ATTRIBUTES_AT: Final = 20
_PORT: Final = struct.Struct("=I")
_SO_RCVBUFFORCE: Final = 33
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_FILTER: Final = struct.Struct("=HBBI")
"""struct sock_filter: code, jumps where it is true and where not, operand (linux/filter.h)."""
_LOAD_WORD, _LOAD_HALF, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x28, 0x15, 0x06
_ALL: Final = 0xFFFFFFFF

Instruction: TypeAlias = tuple[int, int, int, int]
"""One instruction of a socket filter, in the order of `_FILTER`."""


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
    """Whether a message changes this table, in whatever address family."""
    table = name.encode() + b"\0"  # the first attribute of every object is the name of its table
    return lambda message: attributes(message.body, NFGENMSG.size).get(NFTA_TABLE_NAME) == table


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
        """Who carried out the matching transactions that end in this datagram."""
        if self._passed_over and _PORT.unpack_from(buffer, _PORT_AT)[0] in self._passed_over:
            self.is_match = False
            return
        for message in messages(buffer):
            if message.kind >> 8 != NFNL_SUBSYS_NFTABLES:
                continue
            if message.kind & 0xFF == NFT_MSG_NEWGEN:
                if self.is_match:
                    row = attributes(message.body, NFGENMSG.size)
                    name = text_of(row.get(NFTA_GEN_PROC_NAME, b""))
                    yield Author(name, int.from_bytes(row.get(NFTA_GEN_PROC_PID, b""), "big"), message.port)
                self.has_others |= not self.is_match
                self.is_match = False
            elif not self.is_match:
                self.is_match = self._matches(message)


def _of_port(port: int) -> tuple[Instruction, ...]:
    """A filter that drops what comes from one netlink port."""
    (loaded,) = struct.unpack(">I", _PORT.pack(port))  # the filter loads in network byte order
    return (
        (_LOAD_WORD, 0, 0, _PORT_AT),
        (_JUMP_IF_EQUAL, 0, 1, loaded),
        (_RETURN, 0, 0, 0),
        (_RETURN, 0, 0, _ALL),
    )


def _of_table(name: str) -> tuple[Instruction, ...]:
    """A filter that accepts datagrams whose first message is about this table, and the ends of all transactions."""
    (end,) = struct.unpack(">H", struct.pack("=H", NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN))
    first = attribute(NFTA_TABLE_NAME, name.encode() + b"\0")
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


class TransactionSocket:
    """A socket, not blocking, that receives all transactions; OSError where that is not allowed."""

    def __init__(self, reader: TransactionReader, *, room_bytes: int = 1 << 20) -> None:
        self.is_overrun = False
        """Whether messages were lost since this was set to False."""
        self.has_lost_end = False
        """Whether the end of a matching transaction may have been lost since this was set to False."""
        self._reader = reader
        self._socket = netlink_socket(NETLINK_NETFILTER, NFNLGRP_NFTABLES, receive_bytes=room_bytes)
        with suppress(OSError):  # in a user namespace: as much as net.core.rmem_max lets every socket have
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, room_bytes)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """The socket's number, for the event loop."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def pass_over(self, port: int | None) -> None:
        """Let the kernel leave out what comes from one port, from now on; None: nothing.

        The messages of a large transaction would not fit into the socket's buffer.
        """
        if port is None:
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
            return
        self._attach(_of_port(port))

    def select_table(self, name: str) -> None:
        """Let the kernel leave out datagrams that begin with another table, from now on, but for ends of transactions.

        Large sets of other programs would fill the socket's buffer. The messages of a transaction that changes several
        tables share datagrams, so of such a transaction only the end may be received.
        """
        self._attach(_of_table(name))

    def _attach(self, rows: Sequence[Instruction]) -> None:
        program = b"".join(_FILTER.pack(*row) for row in rows)
        buffer = ctypes.create_string_buffer(program, len(program))
        with suppress(OSError):
            place = struct.pack("HP", len(rows), ctypes.addressof(buffer))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, place)

    @property
    def has_others(self) -> bool:
        """Whether a transaction has ended, since `forget`, of which no message that was received matches."""
        return self._reader.has_others

    def forget(self) -> None:
        """Forget what was lost and what did not match."""
        self.is_overrun = self.has_lost_end = self._reader.has_others = False

    def authors(self, datagrams: int) -> tuple[list[Author], bool]:
        """The authors in the next datagrams, and whether no more are queued.

        After an overrun the kernel queues nothing until all that it had queued has been read.
        """
        found: list[Author] = []
        for _ in range(datagrams):
            try:
                buffer = self._socket.recv(_DATAGRAM_BYTES)
            except BlockingIOError:
                if self.is_overrun:
                    self.has_lost_end |= self._reader.is_match
                    self._reader.is_match = False
                return found, True
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.is_overrun = True
                continue
            found += self._reader.read(buffer)
        return found, False
