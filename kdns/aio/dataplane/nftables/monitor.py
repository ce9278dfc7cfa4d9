"""Notices changes of kdns's tables by other processes: nftables reports every transaction to a netlink group.

The messages of a transaction are sent before it returns to its caller. So what arrives between the begin and the end
of an own transaction is that transaction, and at most one. A second one in between, and any outside, is foreign.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

from kdns import logs
from kdns.aio.dataplane.nftables import nft
from kdns.aio.netlink.nftables import Author, TransactionReader, transactions_socket
from kdns.proxy.nftables.objects import TABLE

log = logs.get(__name__)

_DATAGRAM_BYTES: Final = 1 << 18
_BURST: Final = 64
"""Datagrams that are read before others of this event loop have their turn."""
_QUEUED: Final = 4096
"""More datagrams than the socket's buffer can hold: at the begin and the end of an own transaction all are read."""


class TablesMonitor:
    """Calls `changed` with the author of a foreign change of the tables. Lives in one event loop."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._socket: socket.socket | None = None
        self._reader = TransactionReader(TABLE)
        self._own = 0
        self._during_own = 0
        self._is_overrun = False

    def start(self) -> None:
        """Listen. Where the kernel refuses, that is logged, and only the periodic full sync repairs foreign changes."""
        try:
            self._socket = transactions_socket()
        except OSError as error:
            log.warning("foreign changes of rules are not noticed at once", reason=error.strerror)
            return
        asyncio.get_running_loop().add_reader(self._socket, self._readable)
        nft.observers.append(self._transaction)

    def close(self) -> None:
        """Stop listening."""
        if self._socket:
            nft.observers.remove(self._transaction)
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _readable(self, datagrams: int = _BURST) -> None:
        authors = self._received(datagrams)
        if self._own:
            self._during_own += len(authors)
        elif self._is_overrun:
            self._is_overrun = False
            self._changed("more changes than could be followed")
        elif authors:
            self._changed(f"by {authors[-1].process} (process {authors[-1].pid})")

    def _transaction(self, begins: bool) -> None:
        """An own transaction begins or has ended."""
        self._readable(_QUEUED)
        if begins:
            self._own += 1
            return
        self._own -= 1
        if self._own:
            return
        # An overrun in between is from a large transaction, which is most likely the own one.
        transactions, self._during_own, self._is_overrun = self._during_own, 0, False
        if transactions > 1:
            self._changed("at the same time as kdns itself")

    def _received(self, datagrams: int) -> list[Author]:
        """The authors in the next datagrams; where more are queued, the event loop calls again."""
        authors: list[Author] = []
        for _ in range(datagrams if self._socket else 0):
            assert self._socket  # noqa: S101 - it is closed by this event loop only
            try:
                buffer = self._socket.recv(_DATAGRAM_BYTES)
            except BlockingIOError:
                if self._is_overrun:  # the end of the transaction may be among what was lost
                    self._reader.touches_table = False
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._is_overrun, self._reader.touches_table = True, False
                continue
            authors += self._reader.read(buffer)
        return authors
