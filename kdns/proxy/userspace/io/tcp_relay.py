"""A TCP relay: accepts the clients of one front, connects each to an endpoint, and splices the two sockets."""

from __future__ import annotations

import errno
import socket
from asyncio import TimerHandle
from typing import Final

from kdns.proxy.plan.branches import Verdict
from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.userspace.io.resources import RelayResources
from kdns.proxy.userspace.io.sockets import address_family, set_tcp_options
from kdns.proxy.userspace.io.splice import Splice, reset_on_close
from kdns.proxy.userspace.relays import RelayKey
from kdns.proxy.userspace.sessions import Session
from kdns.runtime.poller import ONCE, WHILE_READABLE

CONNECT_TIMEOUTS_S: Final = (0.25, 0.5, 1.0, 2.0)
"""The timeout of each attempt; every attempt is made at another endpoint, if there is one."""
DESCRIPTORS: Final = 6
"""Descriptors of a connection: two sockets, and two pipes (of two descriptors each) while data is under way."""
BURST: Final = 64
PAUSE_S: Final = 0.1
"""How long nothing is accepted after the kernel had no descriptor left."""


class TcpRelay:
    """The listener of one front. Connections outlive it."""

    def __init__(self, key: RelayKey, sockets: list[socket.socket], resources: RelayResources) -> None:
        self.key, self._resources, self._sockets = key, resources, sockets
        for listener in sockets:
            resources.poller.add(listener, WHILE_READABLE, lambda _, sock=listener: self._accept(sock))  # type: ignore[misc]

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        for sock in self._sockets:
            self._accept(sock)
            self._resources.poller.remove(sock)
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
                continue  # the client was gone before it was accepted
            client.setblocking(False)
            self._serve(client, address[0].partition("%")[0])

    def _pause(self, listener: socket.socket) -> None:
        self._resources.descriptors.log_exhausted()
        self._resources.poller.set_events(listener, 0)
        self._resources.loop.call_later(PAUSE_S, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._sockets:
            self._resources.poller.set_events(listener, WHILE_READABLE)

    def _serve(self, client: socket.socket, address: str) -> None:
        resources = self._resources
        session = resources.sessions.accept(self.key, address)
        if session is None:
            reset(client)
            return
        if not session.endpoints:
            session.port.refused += 1
            if session.branch.verdict is Verdict.REJECT:  # without endpoints, other clients get no answer
                reset(client)
            else:
                client.close()
        elif not resources.descriptors.take(DESCRIPTORS, session.client):
            session.port.turned_away += 1
            reset(client)
        else:
            session.port.flows += 1
            session.port.active += 1
            _Connection(resources, session, client).connect()


def reset(client: socket.socket) -> None:
    reset_on_close(client)
    client.close()


class _Connection:
    """A client and its attempts at endpoints, and then the splice of both sockets."""

    __slots__ = ("_attempts", "_client", "_endpoint", "_port", "_resources", "_session", "_splice", "_timer")

    def __init__(self, resources: RelayResources, session: Session, client: socket.socket) -> None:
        self._resources, self._session, self._client, self._port = resources, session, client, session.port
        self._attempts = 0
        self._endpoint: socket.socket | None = None
        self._timer: TimerHandle | None = None
        self._splice: Splice | None = None
        resources.connections.add(self.reset)

    def reset(self) -> None:
        if self._splice:
            self._splice.reset()
        else:
            self._abort()
            reset(self._client)
            self._ended()

    def connect(self) -> None:
        """Starts the next attempt; resets the client after the last one."""
        while self._attempts < len(CONNECT_TIMEOUTS_S):
            target = self._resources.sessions.next_endpoint(self._session, self._resources.now_s())
            if target is None:
                break
            timeout_s = CONNECT_TIMEOUTS_S[self._attempts]
            self._port.retries += self._attempts > 0
            self._attempts += 1
            if self._starts(target):
                self._timer = self._resources.loop.call_later(timeout_s, self._retry)
                return
        self._port.failures += 1
        reset(self._client)
        self._ended()

    def _starts(self, target: ServiceEndpoint) -> bool:
        try:
            endpoint = socket.socket(address_family(target.address), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:
            return False
        set_tcp_options(endpoint)
        if endpoint.connect_ex((target.address, target.port)) not in {0, errno.EINPROGRESS}:
            endpoint.close()
            return False
        self._endpoint = endpoint
        self._resources.poller.add(endpoint, ONCE, lambda events: self._connected(endpoint, events))
        return True

    def _retry(self) -> None:
        self._abort()
        self.connect()

    def _abort(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._endpoint:
            self._resources.poller.remove(self._endpoint)
            self._endpoint = None

    def _connected(self, endpoint: socket.socket, events: int) -> None:
        if endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._retry()
            return
        if self._timer:
            self._timer.cancel()
        resources = self._resources
        self._splice = Splice(
            resources.poller, resources.pipes, self._client, endpoint, events, self._port, self._ended
        )

    def _ended(self) -> None:
        self._resources.connections.discard(self.reset)
        self._port.active -= 1
        self._resources.descriptors.give(DESCRIPTORS, self._session.client)
