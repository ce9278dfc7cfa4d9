"""Notices changes of kdns's tables by other processes: nftables reports every transaction to a netlink group.

The messages of a transaction are sent before it returns to its caller. So what arrives between the begin and the end
of an own transaction is that transaction, and at most one. A second one in between, and any outside, is foreign.

The socket receives messages about kdns's tables, and the ends of all transactions. Where only the end of one was
received, or messages were lost, the tables are compared with what they should have: most likely they did not change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kdns import logs
from kdns.netlink.io.transactions import TransactionSocket
from kdns.netlink.transactions import TransactionReader, changes_table
from kdns.proxy.nftables.io import nft
from kdns.proxy.nftables.objects import TABLE

log = logs.get(__name__)

_BURST: Final = 64
"""Datagrams that are read before others of this event loop have their turn."""
_QUEUED: Final = 4096
"""More datagrams than the socket's buffer can hold: at the begin and the end of an own transaction all are read."""


class TablesMonitor:
    """Calls `changed` with the author of a foreign change of the tables. Lives in one event loop.

    `look` is called where there may have been one.
    """

    def __init__(self, changed: Callable[[str], None], look: Callable[[], None]) -> None:
        self._changed, self._look = changed, look
        self._socket: TransactionSocket | None = None
        self._own = 0
        self._during_own = 0

    def start(self) -> None:
        """Listens. A refusal of the kernel is logged; then only the periodic full sync repairs foreign changes."""
        try:
            self._socket = TransactionSocket(TransactionReader(changes_table(TABLE)))
        except OSError as error:
            log.warning("foreign changes of rules are not noticed at once", reason=error.strerror)
            return
        self._socket.select_table(TABLE)
        asyncio.get_running_loop().add_reader(self._socket, self._readable)
        nft.observers.append(self._transaction)

    def close(self) -> None:
        if self._socket:
            nft.observers.remove(self._transaction)
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _readable(self, datagrams: int = _BURST) -> None:
        if self._socket is None:
            return
        authors, is_empty = self._socket.authors(datagrams)  # where more are queued, the event loop calls again
        if self._own:
            self._during_own += len(authors)
            return
        if authors:
            self._changed(str(authors[-1]))
        if is_empty:
            if self._socket.has_lost_end:
                self._changed("more changes than could be followed")
            self._look_if_unclear()

    def _look_if_unclear(self) -> None:
        if self._socket and (self._socket.is_overrun or self._socket.has_others):
            self._socket.forget()
            self._look()

    def _transaction(self, begins: bool) -> None:
        """An own transaction begins or has ended."""
        self._readable(_QUEUED)
        if begins:
            self._own += 1
            return
        self._own -= 1
        if self._own:
            return
        transactions, self._during_own = self._during_own, 0
        if transactions > 1:
            self._changed("at the same time as kdns itself")
        self._look_if_unclear()  # an overrun in between is from a large transaction, most likely the own one
