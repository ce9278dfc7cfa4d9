"""Notices what others do to kdns's tables: nftables tells a netlink group of every change.

Messages of one transaction come together, and its end (NEWGEN) says which process it was. They are sent before the
transaction returns to who asked for it; so whatever arrives between the begin and the end of an own transaction is its
own, up to one transaction. A second one in between, and any outside of it, is a stranger's.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kdns import logs
from kdns.aio import nft
from kdns.aio.netlink import NETFILTER, attributes, messages, opened
from kdns.proxy.nftables import TABLE

log = logs.get(__name__)

_GROUP: Final = 7  # NFNLGRP_NFTABLES
_SUBSYSTEM: Final = 10
_NEWGEN: Final = 15
_GENERIC_BYTES: Final = 4  # struct nfgenmsg
_GEN_PID, _GEN_NAME = 2, 3
_TABLE_NAME: Final = 1
_WANTED: Final = TABLE.encode() + b"\0"
_MOST_BYTES: Final = 1 << 18
_AT_ONCE: Final = 64
"""Packets of messages read before others of this event loop have their turn."""
_QUEUED: Final = 4096
"""More than the socket's buffer can hold: what is there when an own transaction begins and ends is read whole."""


@dataclass(slots=True)
class Seen:
    """What a packet of messages tells: transactions that touched the tables, and who made the last one."""

    transactions: int = 0
    author: str = ""


class TablesMonitor:
    """Calls `told` with the reason when somebody else changed the tables. Lives in one event loop."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self._told = told
        self._socket: socket.socket | None = None
        self._is_touched = False
        self._own = 0
        self._own_seen = 0
        self._is_overrun = False

    def start(self) -> None:
        """Listen; where the kernel does not let us, this is told in the log and changes are found by the full check."""
        try:
            self._socket = opened(NETFILTER, _GROUP)
        except OSError as error:
            log.warning("changes by others are not noticed at once", reason=error.strerror)
            return
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket, self._readable)
        nft.observers.append(self._transaction)

    def close(self) -> None:
        """Stop listening."""
        if self._socket:
            nft.observers.remove(self._transaction)
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _readable(self, most: int = _AT_ONCE) -> None:
        seen = self._drained(most)
        if self._own:
            self._own_seen += seen.transactions
        elif self._is_overrun:
            self._is_overrun = False
            self._told("more changes than could be followed")
        elif seen.transactions:
            self._told(f"by {seen.author}")

    def _transaction(self, begins: bool) -> None:
        """An own transaction begins or has ended."""
        self._readable(_QUEUED)
        if begins:
            self._own += 1
            return
        self._own -= 1
        if self._own:
            return
        # Too many messages at once are those of a large transaction, which is most likely the own one.
        seen, self._own_seen, self._is_overrun = self._own_seen, 0, False
        if seen > 1:
            self._told("at the same time as kdns itself")

    def _drained(self, most: int) -> Seen:
        """What the next packets of messages tell; where there are more of them, the event loop calls again."""
        seen = Seen()
        for _ in range(most if self._socket else 0):
            assert self._socket  # noqa: S101 - closed by nobody meanwhile
            try:
                buffer = self._socket.recv(_MOST_BYTES)
            except BlockingIOError:
                self._is_touched = self._is_touched and not self._is_overrun  # its end may be among what was lost
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._is_overrun, self._is_touched = True, False
                continue
            self._read(buffer, seen)
        return seen

    def _read(self, buffer: bytes, seen: Seen) -> None:
        for message in messages(buffer):
            if message.kind >> 8 != _SUBSYSTEM:
                continue
            if message.kind & 0xFF == _NEWGEN:
                if self._is_touched:
                    found = attributes(message.body, _GENERIC_BYTES)
                    name = found.get(_GEN_NAME, b"").rstrip(b"\0").decode(errors="replace")
                    seen.author = f"{name} (process {int.from_bytes(found.get(_GEN_PID, b''), 'big')})"
                    seen.transactions += 1
                self._is_touched = False
            elif not self._is_touched:
                self._is_touched = attributes(message.body, _GENERIC_BYTES).get(_TABLE_NAME) == _WANTED
