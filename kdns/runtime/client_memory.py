"""What clients make the process hold, over every transport: by connection, by client and in all.

Three stages count: received bytes that are not answered yet, queries that wait for an answer, and responses that are
not sent. Backpressure comes first: a connection without room is not read until it has some, and a query that would
wait gets SERVFAIL. Over the limit of the process, the connection that holds the most of the client that holds the most
is closed. Clients are identified by `net.client_of`.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from kdns.net import client_of

MAX_HELD_BYTES: Final = 6 << 20
"""The limit of the process. A client may hold as much as remains for all others: half of it, if it is alone."""
MAX_CONNECTION_BYTES: Final = 256 << 10
MIN_CLIENT_BYTES: Final = 128 << 10
"""Every client may hold this: the largest message, and its answer."""
MAX_PENDING: Final = 4000
"""The most queries of a process that wait, for example for an upstream; further ones get SERVFAIL.

One client has at most half of them, over all transports and connections together.
"""
PENDING_COST_BYTES: Final = 2048
PENDING_COPIES: Final = 4
"""A pending query may exist as a packet, as options of EDNS, as a query to an upstream and in the buffer of that."""
RESUME_S: Final = 0.05
"""Interval at which connections without room are checked."""


def pending_bytes(packet: bytes) -> int:
    return PENDING_COST_BYTES + PENDING_COPIES * len(packet)


class Holder(Protocol):
    """A connection with an account."""

    def evict(self) -> None:
        """Ends the connection and closes its account, at once."""

    def resume(self) -> None:
        """Reads again: there is room."""


class Client:
    """What one client holds, and how many of its queries are pending."""

    __slots__ = ("accounts", "held_bytes", "key", "pending")

    def __init__(self, key: str | bytes) -> None:
        self.key = key
        self.held_bytes = self.pending = 0
        self.accounts: dict[Account, None] = {}


class ClientMemory:
    """All clients of a process. `take` and `release` are for queries over UDP, which has no connections."""

    def __init__(self, max_bytes: int = MAX_HELD_BYTES, max_pending: int = MAX_PENDING) -> None:
        self.held_bytes = 0
        self._max_bytes, self._free_places = max_bytes, max_pending
        self._clients: dict[str | bytes, Client] = {}
        self._paused: dict[Account, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def account(self, address: str, holder: Holder) -> Account:
        key = client_of(address)
        return Account(self, self._clients.get(key) or self._added(key), holder)

    def take(self, address: str, packet: bytes) -> bool:
        key = client_of(address)
        client = self._clients.get(key) or self._added(key)
        if self.admit(client, pending_bytes(packet)):
            return True
        self.forget(client)
        return False

    def release(self, address: str, packet: bytes) -> None:
        self.free(self._clients[client_of(address)], pending_bytes(packet))

    def has_room(self, client: Client) -> bool:
        return client.held_bytes < MIN_CLIENT_BYTES or client.held_bytes + self.held_bytes < self._max_bytes

    def admit(self, client: Client, size_bytes: int) -> bool:
        """Counts a pending query of this size; False if the client has its share of places or bytes already."""
        if client.pending >= self._free_places or not self.has_room(client):
            return False
        client.pending += 1
        self._free_places -= 1
        self.add(client, size_bytes)
        return True

    def free(self, client: Client, size_bytes: int) -> None:
        client.pending -= 1
        self._free_places += 1
        client.held_bytes -= size_bytes
        self.held_bytes -= size_bytes
        if not client.pending:
            self.forget(client)

    def add(self, client: Client, change_bytes: int) -> None:
        """Records a change; over the limit, connections are closed."""
        client.held_bytes += change_bytes
        self.held_bytes += change_bytes
        if self.held_bytes > self._max_bytes:
            self._evict()

    def _evict(self) -> None:
        while self.held_bytes > self._max_bytes:
            connected = [client for client in self._clients.values() if client.accounts]
            if not connected:
                return
            accounts = max(connected, key=lambda client: client.held_bytes).accounts
            account = max(accounts, key=lambda account: account.size_bytes)
            account.holder.evict()
            account.close()

    def forget(self, client: Client) -> None:
        if not (client.accounts or client.pending):
            self._clients.pop(client.key, None)

    def pause(self, account: Account) -> None:
        """Resumes the connection once it has room."""
        self._paused[account] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RESUME_S, self._resume)

    def _resume(self) -> None:
        self._timer = None
        paused, self._paused = self._paused, {}
        for account in paused:
            if account.is_closed:
                continue
            if account.has_room:
                account.holder.resume()
            else:
                self.pause(account)

    def _added(self, key: str | bytes) -> Client:
        client = self._clients[key] = Client(key)
        return client


class Account:
    """What one connection holds: `held_bytes` received or not sent, `pending_bytes` of queries that wait."""

    __slots__ = ("_client", "_memory", "held_bytes", "holder", "is_closed", "pending_bytes")

    def __init__(self, memory: ClientMemory, client: Client, holder: Holder) -> None:
        self.holder = holder
        self.held_bytes = self.pending_bytes = 0
        self.is_closed = False
        self._memory, self._client = memory, client
        client.accounts[self] = None

    @property
    def size_bytes(self) -> int:
        return self.held_bytes + self.pending_bytes

    @property
    def has_room(self) -> bool:
        return self.size_bytes < MAX_CONNECTION_BYTES and self._memory.has_room(self._client)

    def hold(self, size_bytes: int) -> None:
        """Records the bytes that are received or not sent. Over the limit, connections are closed: maybe this one."""
        if not self.is_closed:
            change_bytes, self.held_bytes = size_bytes - self.held_bytes, size_bytes
            self._memory.add(self._client, change_bytes)

    def take(self, _address: str, packet: bytes) -> bool:
        """Counts a pending query; False if its client has its share already."""
        size_bytes = pending_bytes(packet)
        self.pending_bytes += size_bytes
        if self._memory.admit(self._client, size_bytes):
            return True
        self.pending_bytes -= size_bytes
        return False

    def release(self, _address: str, packet: bytes) -> None:
        size_bytes = 0 if self.is_closed else pending_bytes(packet)
        self.pending_bytes -= size_bytes
        self._memory.free(self._client, size_bytes)

    def pause(self) -> None:
        self._memory.pause(self)

    def close(self) -> None:
        """Ends the account. Pending queries keep their places until their release."""
        if not self.is_closed:
            self.is_closed = True
            del self.holder  # which refers to this account: it would wait for garbage collection
            del self._client.accounts[self]
            self._memory.add(self._client, -self.size_bytes)
            self._memory.forget(self._client)
