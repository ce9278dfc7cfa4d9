"""Receives the kernel's reports of nftables transactions from a netlink group, and tells foreign ones from own ones."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import socket
import struct
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Final

from kdns import logs
from kdns.netlink.io.requests import netlink_socket
from kdns.netlink.protocol import Message
from kdns.netlink.transactions import Author, TransactionReader, socket_filter
from kdns.netlink.uapi import NETLINK_NETFILTER, NFNLGRP_NFTABLES

_BURST: Final = 64
"""Datagrams that are read before others of this event loop have their turn."""
_QUEUED_BYTES: Final = 256
"""Less than a queued datagram takes of the socket's buffer."""
_DATAGRAM_BYTES: Final = 1 << 18
_SO_RCVBUFFORCE: Final = 33
_SO_ATTACH_FILTER: Final = 26
_FILTER: Final = struct.Struct("=HBBI")
"""struct sock_filter: code, jumps where it is true and where not, operand (linux/filter.h)."""

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
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def select(self, ports: Collection[int], table: str) -> None:
        """Lets the kernel drop what comes from these ports, and with `table` what begins with another table.

        The messages of a large transaction would not fit into the socket's buffer, and those of large sets of other
        programs would fill it. The ends of transactions are not dropped. The messages of a transaction that changes
        several tables share datagrams, so of such a transaction only the end may be received.
        """
        rows = socket_filter(ports, table)
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

    Own transactions are known by the port of their socket, see `own`. Where that is not known, what arrives between
    their `begin` and `end` is that transaction, and at most one: a second one in between is foreign. It is one of
    `monitors` within its context.

    With `table` the kernel drops datagrams that begin with another table. Where only the end of a transaction was
    received, or messages were lost, `look` is called: most likely nothing has changed.
    """

    def __init__(
        self,
        matches: Callable[[Message], bool],
        monitors: list[TransactionMonitor],
        changed: Callable[[str], None],
        look: Callable[[], None],
        *,
        table: str = "",
        ports: Iterable[int] = (),
        room_bytes: int = 1 << 20,
    ) -> None:
        self._matches, self._monitors, self._changed, self._look = matches, monitors, changed, look
        self._table, self._room_bytes = table, room_bytes
        self._socket: TransactionSocket | None = None
        self._ports = set(ports)
        """Those of own sockets."""
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
        self._socket.select(self._ports, self._table)
        asyncio.get_running_loop().add_reader(self._socket, self.readable)
        self._monitors.append(self)

    def __exit__(self, *_: object) -> None:
        if self._socket:
            self._monitors.remove(self)
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

    def begin(self) -> None:
        """What is queued is of before."""
        self.read_all()
        self._unknown += 1

    def end(self, *, is_known: bool = False) -> None:
        """An own transaction has ended, even if it failed, or its port `is_known` now, or it was not begun at all."""
        self.read_all()
        self._unknown -= 1
        if self._unknown:
            return
        if (foreign := self._foreign())[0 if is_known else 1 :]:
            self._changed(str(foreign[-1]) if is_known else "at the same time as kdns itself")
        self._look_if_unclear()  # an overrun in between is from a large transaction, most likely the own one

    def own(self, port: int) -> None:
        """What comes from this port is own from now on. May be called in a thread."""
        self._ports.add(port)
        if self._socket:
            self._socket.select(self._ports, self._table)

    def not_own(self, port: int) -> None:
        """The port is free: a new process may get it. May be called in a thread."""
        self._ports.discard(port)
        if self._socket:
            self._socket.select(self._ports, self._table)

    def read_all(self) -> None:
        self.readable(self._room_bytes // _QUEUED_BYTES)

    def _foreign(self) -> list[Author]:
        """Returns the suspects whose port is not own; from now on there are none."""
        suspects, self._suspects = self._suspects, []
        return [author for author in suspects if author.port not in self._ports]

    def _look_if_unclear(self) -> None:
        if self._socket and (self._socket.is_overrun or (self._table and self._socket.has_others)):
            self._socket.forget()
            self._look()
