"""A UDP relay: each client of a front has a socket of its own towards its endpoint, until both are silent."""

from __future__ import annotations

import socket
from asyncio import TimerHandle
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final

from kdns.aio.poller import WHILE_READABLE
from kdns.aio.relays import IP_PKTINFO, Shared
from kdns.proxy.backends import Backend
from kdns.proxy.relaying import Call, PortCounters
from kdns.proxy.userspace import RelayKey

BURST: Final = 32
ATTEMPTS: Final = 4
_ANCILLARY_BYTES: Final = 128


class _Flow:
    """A client and its socket towards the endpoint. `local` is where the client's datagrams arrived."""

    __slots__ = ("backend", "call", "client", "counters", "listener", "local", "used_s", "way")

    def __init__(self, call: Call, client: Any, listener: socket.socket, local: bytes, counters: PortCounters) -> None:
        self.call, self.client, self.listener, self.local, self.counters = call, client, listener, local, counters
        self.backend: Backend
        self.way: socket.socket
        self.used_s = 0.0


class UdpRelay:
    """The listener of one front and the flows through it."""

    def __init__(self, key: RelayKey, sockets: list[socket.socket], shared: Shared, idle_s: float) -> None:
        self.key, self._shared, self._sockets, self._idle_s = key, shared, sockets, idle_s
        self._buffer = shared.datagram
        self._flows: dict[tuple[Any, bytes], _Flow] = {}
        self._timer: TimerHandle | None = None
        self._level, self._kind = (
            (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO) if key.family == "IPv6" else (socket.IPPROTO_IP, IP_PKTINFO)
        )
        for each in sockets:
            shared.poller.add(each, WHILE_READABLE, lambda _, sock=each: self._receive(sock))  # type: ignore[misc]

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """End everything."""
        self.keep(())
        for sock in self._sockets:
            self._shared.poller.remove(sock)
        self._sockets = []
        if self._timer:
            self._timer.cancel()

    def keep(self, backends: Collection[Backend]) -> None:
        """End the flows to all other endpoints."""
        kept = {(each.address, each.port) for each in backends}
        for key, flow in list(self._flows.items()):
            if (flow.backend.address, flow.backend.port) not in kept:
                self._end(key)

    def _receive(self, listener: socket.socket) -> None:
        for _ in range(BURST):
            try:
                size, ancillary, _, client = listener.recvmsg_into([self._buffer], _ANCILLARY_BYTES)
            except BlockingIOError:
                return
            except OSError:
                continue  # news of a client that did not want its answer
            local = next((told for level, kind, told in ancillary if (level, kind) == (self._level, self._kind)), b"")
            self._to_endpoint(listener, client, local, self._buffer[:size])

    def _to_endpoint(self, listener: socket.socket, client: Any, local: bytes, datagram: memoryview) -> None:
        key = (client, local)
        flow = self._flows.pop(key, None) or self._begun(listener, client, local)
        if flow is None:
            return
        self._flows[key] = flow  # the last in the order of use
        flow.used_s = self._shared.now_s()
        flow.counters.received_bytes += len(datagram)
        try:
            flow.way.send(datagram)
        except BlockingIOError:
            return
        except OSError:  # the endpoint did not want an earlier datagram: the next endpoint gets this one
            if self._reconnected(flow, key):
                with suppress(OSError):
                    flow.way.send(datagram)

    def _begun(self, listener: socket.socket, client: Any, local: bytes) -> _Flow | None:
        shared = self._shared
        call = shared.relaying.call(self.key, client[0].partition("%")[0])
        if call is None:
            return None
        counters = shared.relaying.counters_of(call.front.port.name)
        if not call.decided.backends:
            counters.refused += 1
            return None
        if not shared.room.take(1):
            counters.turned_away += 1
            return None
        flow = _Flow(call, client, listener, self._answering(local), counters)
        if not self._connect(flow, (client, local)):
            shared.room.give(1)
            return None
        counters.flows += 1
        counters.active += 1
        if self._timer is None:
            self._timer = shared.loop.call_later(self._idle_s, self._sweep)
        return flow

    def _connect(self, flow: _Flow, key: tuple[Any, bytes]) -> bool:
        for attempt in range(ATTEMPTS):
            backend = self._shared.relaying.choose(flow.call, self._shared.now_s())
            if backend is None:
                break
            flow.counters.retries += attempt > 0
            way = _connected(backend)
            if way is not None:
                flow.backend, flow.way = backend, way
                self._shared.poller.add(way, WHILE_READABLE, lambda _: self._to_client(key, flow))
                return True
        flow.counters.failures += 1
        return False

    def _reconnected(self, flow: _Flow, key: tuple[Any, bytes]) -> bool:
        """Whether there is another endpoint in place of one that is not there; otherwise the flow has ended."""
        flow.counters.retries += 1
        self._shared.poller.remove(flow.way)
        if self._connect(flow, key):
            return True
        del self._flows[key]
        self._ended(flow)
        return False

    def _to_client(self, key: tuple[Any, bytes], flow: _Flow) -> None:
        for _ in range(BURST):
            try:
                size = flow.way.recv_into(self._buffer)
            except BlockingIOError:
                return
            except OSError:
                self._reconnected(flow, key)
                return
            flow.used_s = self._shared.now_s()
            self._flows[key] = self._flows.pop(key)
            flow.counters.sent_bytes += size
            try:
                flow.listener.sendmsg([self._buffer[:size]], [(self._level, self._kind, flow.local)], 0, flow.client)
            except OSError:  # no room, or the client is gone: datagrams may be lost
                continue

    def _answering(self, local: bytes) -> bytes:
        """Packet information that lets an answer come from where the question went to.

        Only a link-local address belongs to an interface; otherwise the answer goes where the routes lead.
        """
        if self.key.family == "IPv6":
            is_link_local = local[:1] == b"\xfe" and local[1] & 0xC0 == 0x80  # fe80::/10
            return local if is_link_local else local[:16] + bytes(4)
        return bytes(4) + local[4:8] + bytes(4)

    def _sweep(self) -> None:
        """End the flows that have been silent for long enough, and look again when the next one may be."""
        self._timer = None
        now_s = self._shared.now_s()
        while self._flows:
            key, flow = next(iter(self._flows.items()))
            if now_s - flow.used_s < self._idle_s:
                self._timer = self._shared.loop.call_later(flow.used_s + self._idle_s - now_s, self._sweep)
                return
            self._end(key)

    def _end(self, key: tuple[Any, bytes]) -> None:
        flow = self._flows.pop(key)
        self._shared.poller.remove(flow.way)
        self._ended(flow)

    def _ended(self, flow: _Flow) -> None:
        flow.counters.active -= 1
        self._shared.room.give(1)


def _connected(backend: Backend) -> socket.socket | None:
    """A socket towards the endpoint, None if there is no way to it."""
    family = socket.AF_INET6 if ":" in backend.address else socket.AF_INET
    try:
        way = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    except OSError:
        return None
    if way.connect_ex((backend.address, backend.port)):
        way.close()
        return None
    return way
