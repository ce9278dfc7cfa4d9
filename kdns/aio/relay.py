"""A TCP relay: accepts clients of one front, finds each an endpoint that answers, and joins the two."""

from __future__ import annotations

import errno
import socket
from asyncio import TimerHandle
from typing import Final

from kdns.aio.poller import ONCE, WHILE_READABLE
from kdns.aio.relays import Shared, quicken
from kdns.aio.splice import Splice, forget
from kdns.proxy.backends import Backend
from kdns.proxy.relaying import Call, PortCounters, header
from kdns.proxy.userspace import RelayKey

CONNECT_TIMEOUTS_S: Final = (0.25, 0.5, 1.0, 2.0)
"""How long each attempt may take; every one goes to the next endpoint."""
DESCRIPTORS: Final = 6
"""What a connection may hold: two sockets always, and two pipes while neither side takes what is under way."""
BURST: Final = 64
PAUSE_S: Final = 0.1
"""After the kernel had no descriptor left."""


class TcpRelay:
    """The listener of one front. Connections outlive it."""

    def __init__(self, key: RelayKey, sockets: list[socket.socket], shared: Shared) -> None:
        self.key, self._shared, self._sockets = key, shared, sockets
        for each in sockets:
            shared.poller.add(each, WHILE_READABLE, lambda _, sock=each: self._accept(sock))  # type: ignore[misc]

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Take no more clients than are waiting."""
        for sock in self._sockets:
            self._accept(sock)
            self._shared.poller.remove(sock)
        self._sockets = []

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(BURST):
            try:
                client, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    self._pause(listener)
                    return
                continue  # a client that left before it was let in
            client.setblocking(False)
            self._answer(client, address[0].partition("%")[0], address[1])

    def _pause(self, listener: socket.socket) -> None:
        self._shared.room.tell()
        self._shared.poller.pause(listener)
        self._shared.loop.call_later(PAUSE_S, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._sockets:
            self._shared.poller.pause(listener, WHILE_READABLE)

    def _answer(self, client: socket.socket, address: str, port: int) -> None:
        shared = self._shared
        call = shared.relaying.call(self.key, address)
        if call is None:
            end(client)
            return
        counters = shared.relaying.counters_of(call.front.port.name)
        if not call.decided.backends:
            counters.refused += 1
            if call.is_refused:
                end(client)
            else:
                client.close()
        elif not shared.room.take(DESCRIPTORS):
            counters.turned_away += 1
            end(client)
        else:
            counters.flows += 1
            counters.active += 1
            _Connection(shared, call, client, port, counters).go_on()


def end(client: socket.socket) -> None:
    """Reset the connection."""
    forget(client)
    client.close()


class _Connection:
    """A client for whom an endpoint is looked for, and then the two of them."""

    __slots__ = (
        "_attempts",
        "_call",
        "_client",
        "_client_port",
        "_counters",
        "_endpoint",
        "_shared",
        "_splice",
        "_timer",
    )

    def __init__(
        self, shared: Shared, call: Call, client: socket.socket, client_port: int, counters: PortCounters
    ) -> None:
        self._shared, self._call, self._client, self._counters = shared, call, client, counters
        self._client_port = client_port
        self._attempts = 0
        self._endpoint: socket.socket | None = None
        self._timer: TimerHandle | None = None
        self._splice: Splice | None = None
        shared.connections.add(self)

    def reset(self) -> None:
        """End it, whatever it is at."""
        if self._splice:
            self._splice.reset()
        else:
            self._stop()
            end(self._client)
            self._ended()

    def go_on(self) -> None:
        """Try the next endpoint, until one can be tried or all attempts are used up."""
        while self._attempts < len(CONNECT_TIMEOUTS_S):
            backend = self._shared.relaying.choose(self._call, self._shared.now_s())
            if backend is None:
                break
            timeout_s = CONNECT_TIMEOUTS_S[self._attempts]
            self._counters.retries += self._attempts > 0
            self._attempts += 1
            if self._try(backend):
                self._timer = self._shared.loop.call_later(timeout_s, self._next)
                return
        self._counters.failures += 1
        end(self._client)
        self._ended()

    def _try(self, backend: Backend) -> bool:
        """Whether the endpoint may still answer."""
        family = socket.AF_INET6 if ":" in backend.address else socket.AF_INET
        try:
            endpoint = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:
            return False
        quicken(endpoint)
        if endpoint.connect_ex((backend.address, backend.port)) not in {0, errno.EINPROGRESS}:
            endpoint.close()
            return False
        self._endpoint = endpoint
        self._shared.poller.add(endpoint, ONCE, lambda events: self._answered(endpoint, events))
        return True

    def _next(self) -> None:
        self._stop()
        self.go_on()

    def _stop(self) -> None:
        """Give the attempt up."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._endpoint:
            self._shared.poller.remove(self._endpoint)
            self._endpoint = None

    def _answered(self, endpoint: socket.socket, events: int) -> None:
        if endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or not self._introduced(endpoint):
            self._next()
            return
        if self._timer:
            self._timer.cancel()
        shared = self._shared
        self._splice = Splice(shared.poller, shared.pipes, self._client, endpoint, events, self._counters, self._ended)

    def _introduced(self, endpoint: socket.socket) -> bool:
        """Whether the endpoint could be told of the client, where it wants to be."""
        told = header(self._call, self._client_port)
        try:
            return not told or endpoint.send(told) == len(told)
        except OSError:
            return False

    def _ended(self, splice: Splice | None = None) -> None:
        del splice
        self._shared.connections.discard(self)
        self._counters.active -= 1
        self._shared.room.give(DESCRIPTORS)
