"""Receives the kernel's reports of nftables transactions from a netlink group.

The messages of a transaction are sent before it returns to its caller, and come together; its end (NFT_MSG_NEWGEN)
names its process.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kdns.netlink.io.requests import netlink_socket
from kdns.netlink.transactions import Author, Instruction, TransactionReader, port_filter, table_filter
from kdns.netlink.uapi import (
    NETLINK_NETFILTER,
    NFNLGRP_NFTABLES,
)

_DATAGRAM_BYTES: Final = 1 << 18
_SO_RCVBUFFORCE: Final = 33
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_FILTER: Final = struct.Struct("=HBBI")
"""struct sock_filter: code, jumps where it is true and where not, operand (linux/filter.h)."""


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
