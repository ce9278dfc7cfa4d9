"""Receives the kernel's reports of nftables transactions from a netlink group, and finds foreign ones.

The messages of a transaction are sent before it returns to its caller, and come together; its end (NFT_MSG_NEWGEN)
names its process.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from kdns import logs
from kdns.netlink.io.requests import netlink_socket
from kdns.netlink.protocol import NLMSGHDR, Message, messages
from kdns.netlink.transactions import Author, author_of, socket_filter
from kdns.netlink.uapi import NETLINK_NETFILTER, NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, NFT_MSG_NEWGEN

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


_monitors: list[TransactionMonitor] = []
"""Those within their context."""
_own_ports: set[int] = set()
"""The netlink ports of sockets of this process, and of programs that it runs."""


def own(port: int) -> None:
    """What comes from this port is own from now on. May be called in a thread."""
    _own_ports.add(port)
    _attach_filters()


def not_own(port: int) -> None:
    """The port is free: a new process may get it. May be called in a thread."""
    _own_ports.discard(port)
    _attach_filters()


def _attach_filters() -> None:
    for monitor in tuple(_monitors):
        monitor.attach_filter()


@contextmanager
def own_program() -> Iterator[Callable[[int], None]]:
    """Makes the transactions of a program own. Call the result with its process id as soon as it has started."""
    monitors, port = tuple(_monitors), 0

    def started(process_id: int) -> None:
        nonlocal port
        port = process_id
        own(port)
        for monitor in monitors:
            monitor.end()

    for monitor in monitors:
        monitor.begin()
    try:
        yield started
    finally:
        for monitor in monitors:
            (monitor.read_all if port else monitor.end)()
        if port:
            not_own(port)


class TransactionMonitor:
    """Calls `changed` with the author of each foreign transaction with a message that `matches`, within its context.

    Own transactions are known by their port. What arrives while an own program starts, whose port is not known yet,
    waits until it is.

    With `table` the kernel drops datagrams that begin with another table: the messages of large sets of other programs
    would fill the socket's buffer. Since the messages of a transaction that changes several tables share datagrams, of
    such a one only the end may be received. After that, or where messages were lost, `look` is called: most likely
    nothing has changed.
    """

    def __init__(
        self,
        matches: Callable[[Message], bool],
        changed: Callable[[str], None],
        look: Callable[[], None],
        *,
        table: str = "",
        room_bytes: int = 1 << 20,
    ) -> None:
        self._matches, self._changed, self._look = matches, changed, look
        self._table, self._room_bytes = table, room_bytes
        self._socket: socket.socket | None = None
        self._is_match = False
        """Whether a message of the transaction whose end has not come yet matches."""
        self._has_others = self._is_overrun = self._has_lost_end = False
        """Since the last look: a transaction without a match ended, messages were lost, among them a matching end."""
        self._starting = 0
        """Own programs whose port is not known."""
        self._suspects: list[Author] = []
        """Authors of transactions that may be theirs."""

    def __enter__(self) -> None:
        """Listens. A refusal of the kernel is logged; then only the periodic full sync repairs foreign changes."""
        try:
            self._socket = netlink_socket(NETLINK_NETFILTER, NFNLGRP_NFTABLES, receive_bytes=self._room_bytes)
        except OSError as error:
            log.warning("foreign changes of rules are not noticed at once", reason=error.strerror)
            return
        with suppress(OSError):  # in a user namespace: as much as net.core.rmem_max lets every socket have
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, self._room_bytes)
        self._socket.setblocking(False)
        self.attach_filter()
        asyncio.get_running_loop().add_reader(self._socket, self.readable)
        _monitors.append(self)

    def __exit__(self, *_: object) -> None:
        if self._socket:
            _monitors.remove(self)
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def readable(self, datagrams: int = _BURST) -> None:
        if self._socket is None:
            return
        is_empty = self._receive(self._socket, datagrams)  # where more are queued, the event loop calls again
        if self._starting:
            return
        suspects, self._suspects = self._suspects, []
        if foreign := [author for author in suspects if author.port not in _own_ports]:
            self._changed(str(foreign[-1]))
        if not is_empty:
            return
        if self._has_lost_end:
            self._changed("more changes than could be followed")
        if self._is_overrun or (self._table and self._has_others):
            self._is_overrun = self._has_lost_end = self._has_others = False
            self._look()

    def _receive(self, queue: socket.socket, datagrams: int) -> bool:
        """Reads at most so many datagrams; True if no more are queued.

        After an overrun the kernel queues nothing until all that it had queued has been read.
        """
        for _ in range(datagrams):
            try:
                self._read(queue.recv(_DATAGRAM_BYTES))
            except BlockingIOError:
                if self._is_overrun:
                    self._has_lost_end |= self._is_match and not self._starting  # most likely it is the own one's
                    self._is_match = False
                return True
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._is_overrun = True
        return False

    def _read(self, datagram: bytes) -> None:
        if _own_ports and NLMSGHDR.unpack_from(datagram)[4] in _own_ports:
            self._is_match = False
            return
        for message in messages(datagram):
            if message.kind >> 8 != NFNL_SUBSYS_NFTABLES:
                continue
            if message.kind & 0xFF != NFT_MSG_NEWGEN:
                self._is_match = self._is_match or self._matches(message)
            elif self._is_match:
                self._suspects.append(author_of(message))
                self._is_match = False
            else:
                self._has_others = True

    def begin(self) -> None:
        self._starting += 1

    def end(self) -> None:
        """The port of an own program is known now, or it has not started at all."""
        self.read_all()
        self._starting -= 1
        self.read_all()

    def attach_filter(self) -> None:
        """The kernel drops own messages: those of a large transaction would not fit into the socket's buffer."""
        if self._socket is None:
            return
        rows = socket_filter(_own_ports, self._table)
        program = b"".join(_FILTER.pack(*row) for row in rows)
        buffer = ctypes.create_string_buffer(program, len(program))
        with suppress(OSError):
            reference = struct.pack("HP", len(rows), ctypes.addressof(buffer))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, reference)

    def read_all(self) -> None:
        self.readable(self._room_bytes // _QUEUED_BYTES)
