"""Receives the kernel's reports of nftables transactions from a netlink group, and tells foreign ones from own ones.

The messages of a transaction are sent before it returns to its caller, and come together; its end (NFT_MSG_NEWGEN)
names its process.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from kdns import logs
from kdns.netlink.io.requests import netlink_socket
from kdns.netlink.protocol import Message
from kdns.netlink.transactions import Author, Instruction, TransactionReader, port_filter, table_filter
from kdns.netlink.uapi import NETLINK_NETFILTER, NFNLGRP_NFTABLES

_BURST: Final = 64
"""Datagrams that are read before others of this event loop have their turn."""
_QUEUED_BYTES: Final = 256
"""Less than a queued datagram takes of the socket's buffer."""
_DATAGRAM_BYTES: Final = 1 << 18
_SO_RCVBUFFORCE: Final = 33
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_FILTER: Final = struct.Struct("=HBBI")
"""struct sock_filter: code, jumps where it is true and where not, operand (linux/filter.h)."""

OwnTransaction: TypeAlias = Callable[[int, bool], None]
"""Called with (0, True) before a transaction of this process, and with (0, False) when it has ended, even if it failed.

A transaction of a program has a known port, its id: there is a call with (id, True) when the program runs, and the last
one is with (id, False).
"""

log = logs.get(__name__)


class TransactionSocket:
    """A socket, not blocking, that receives all transactions; OSError where that is not allowed."""

    def __init__(self, reader: TransactionReader, room_bytes: int) -> None:
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
        """Returns the socket's number, for the event loop."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def pass_over(self, port: int | None) -> None:
        """Lets the kernel leave out what comes from one port, from now on; None: nothing.

        The messages of a large transaction would not fit into the socket's buffer.
        """
        if port is None:
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
            return
        self._attach(port_filter(port))

    def select_table(self, name: str) -> None:
        """Lets the kernel drop datagrams that begin with another table, except for ends of transactions.

        Large sets of other programs would fill the socket's buffer. The messages of a transaction that changes several
        tables share datagrams, so of such a transaction only the end may be received.
        """
        self._attach(table_filter(name))

    def _attach(self, rows: Sequence[Instruction]) -> None:
        program = b"".join(_FILTER.pack(*row) for row in rows)
        buffer = ctypes.create_string_buffer(program, len(program))
        with suppress(OSError):
            place = struct.pack("HP", len(rows), ctypes.addressof(buffer))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, place)

    @property
    def has_others(self) -> bool:
        """Whether a transaction without a matching message has ended since `forget`."""
        return self._reader.has_others

    def forget(self) -> None:
        """Forgets what was lost and what did not match."""
        self.is_overrun = self.has_lost_end = self._reader.has_others = False

    def authors(self, datagrams: int) -> tuple[list[Author], bool]:
        """Returns the authors in the next datagrams, and whether no more are queued.

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


class TransactionMonitor:
    """Calls `changed` with the author of each foreign transaction with a message that `matches`, within its context.

    Own transactions, which `observers` hear of, are known by the port of their socket. Where that is not known, what
    arrives between the begin and the end of an own transaction is that transaction, and at most one: a second one in
    between is foreign.

    With `table` the kernel drops datagrams that begin with another table, except for the ends of transactions. Where
    only the end of one was received, or messages were lost, `look` is called: most likely nothing has changed.
    """

    def __init__(
        self,
        matches: Callable[[Message], bool],
        observers: list[OwnTransaction],
        changed: Callable[[str], None],
        look: Callable[[], None],
        *,
        table: str = "",
        room_bytes: int = 1 << 20,
    ) -> None:
        self._matches, self._observers, self._changed, self._look = matches, observers, changed, look
        self._table, self._room_bytes = table, room_bytes
        self._socket: TransactionSocket | None = None
        self._ports: set[int] = set()
        """Ports of own programs that run; one runs at a time."""
        self._unknown = 0
        """Own transactions under way whose port is not known."""
        self._suspects: list[Author] = []
        """Authors of transactions that may be among these."""

    def __enter__(self) -> None:
        """Listens. A refusal of the kernel is logged; then only the periodic full sync repairs foreign changes."""
        try:
            self._socket = TransactionSocket(TransactionReader(self._matches, self._ports), self._room_bytes)
        except OSError as error:
            log.warning("foreign changes of rules are not noticed at once", reason=error.strerror)
            return
        if self._table:
            self._socket.select_table(self._table)
        asyncio.get_running_loop().add_reader(self._socket, self.readable)
        self._observers.append(self.own_transaction)

    def __exit__(self, *_: object) -> None:
        if self._socket:
            self._observers.remove(self.own_transaction)
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def readable(self, datagrams: int = _BURST) -> None:
        if self._socket is None:
            return
        authors, is_empty = self._socket.authors(datagrams)  # where more are queued, the event loop calls again
        self._suspects += authors
        if self._unknown:
            return
        if foreign := self._foreign():
            self._changed(str(foreign[-1]))
        if is_empty:
            if self._socket.has_lost_end:
                self._changed("more changes than could be followed")
            self._look_if_unclear()

    def own_transaction(self, port: int, is_begin: bool) -> None:
        """What is queued at the begin is of before, and at the end of a transaction all of it is queued."""
        if self._socket is None:
            return
        self.readable(self._room_bytes // _QUEUED_BYTES)
        if not port:
            self._unknown += 1 if is_begin else -1
            if not is_begin and not self._unknown:
                if len(self._foreign()) > 1:
                    self._changed("at the same time as kdns itself")
                self._look_if_unclear()  # an overrun in between is from a large transaction, most likely the own one
        elif is_begin:
            self._unknown -= 1
            self._ports.add(port)
            self._socket.pass_over(port)
            self.readable()
        else:
            self._ports.discard(port)  # a new process may get it
            self._socket.pass_over(None)

    def _foreign(self) -> list[Author]:
        """Returns the suspects that are no own program; from now on there are none."""
        suspects, self._suspects = self._suspects, []
        return [author for author in suspects if author.port not in self._ports]

    def _look_if_unclear(self) -> None:
        if self._socket and (self._socket.is_overrun or (self._table and self._socket.has_others)):
            self._socket.forget()
            self._look()
