"""A UDP relay: each client of a front has a socket of its own to its endpoint, until the flow is idle."""

from __future__ import annotations

import socket
from asyncio import TimerHandle
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final

from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.userspace.io.resources import RelayResources
from kdns.proxy.userspace.io.sockets import IP_PKTINFO, address_family
from kdns.proxy.userspace.relays import RelayKey
from kdns.proxy.userspace.sessions import Session
from kdns.runtime.poller import WHILE_READABLE

BURST: Final = 32
ATTEMPTS: Final = 4
LAST_ANSWERS_S: Final = 2.0
"""How long answers of an endpoint that is gone are passed on: those to queries under way."""
_ANCILLARY_BYTES: Final = 128


class _Flow:
    """A client and its socket to the endpoint. `reply_info` is the packet information of datagrams to the client."""

    __slots__ = ("client", "listener", "port", "reply_info", "session", "target", "upstream", "used_s")

    def __init__(self, session: Session, client: Any, listener: socket.socket, reply_info: bytes) -> None:
        self.session, self.client, self.listener, self.port = session, client, listener, session.port
        self.reply_info = reply_info
        self.target: ServiceEndpoint
        self.upstream: socket.socket
        self.used_s = 0.0


class UdpRelay:
    """The listener of one front and the flows through it."""

    def __init__(self, key: RelayKey, sockets: list[socket.socket], resources: RelayResources, idle_s: float) -> None:
        self.key, self._resources, self._sockets, self._idle_s = key, resources, sockets, idle_s
        self._buffer = resources.datagram
        self._flows: dict[tuple[Any, bytes], _Flow] = {}
        self._ending: dict[_Flow, TimerHandle] = {}
        """Flows that get no more datagrams of their clients."""
        self._timer: TimerHandle | None = None
        self._level, self._kind = (
            (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO) if key.family == "IPv6" else (socket.IPPROTO_IP, IP_PKTINFO)
        )
        for listener in sockets:
            resources.poller.add(listener, WHILE_READABLE, lambda _, sock=listener: self._receive(sock))  # type: ignore[misc]

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        self.end_flows_except(())
        for flow in list(self._ending):
            self._close(flow)
        for sock in self._sockets:
            self._resources.poller.remove(sock)
        self._sockets = []
        if self._timer:
            self._timer.cancel()

    def end_flows_except(self, endpoints: Collection[ServiceEndpoint]) -> None:
        """Ends the flows to other endpoints, after their last answers."""
        remaining = {(endpoint.address, endpoint.port) for endpoint in endpoints}
        for key, flow in list(self._flows.items()):
            if (flow.target.address, flow.target.port) not in remaining:
                del self._flows[key]
                self._ending[flow] = self._resources.loop.call_later(LAST_ANSWERS_S, self._close, flow)

    def _receive(self, listener: socket.socket) -> None:
        for _ in range(BURST):
            try:
                size, ancillary, _, client = listener.recvmsg_into([self._buffer], _ANCILLARY_BYTES)
            except BlockingIOError:
                return
            except OSError:
                continue  # an ICMP error: a client did not accept a reply
            local = next((data for level, kind, data in ancillary if (level, kind) == (self._level, self._kind)), b"")
            self._to_endpoint(listener, client, local, self._buffer[:size])

    def _to_endpoint(self, listener: socket.socket, client: Any, local: bytes, datagram: memoryview) -> None:
        key = (client, local)
        flow = self._flows.pop(key, None) or self._new_flow(listener, client, local)
        if flow is None:
            return
        self._flows[key] = flow  # flows are in the order of their last use
        flow.used_s = self._resources.now_s()
        flow.port.received_bytes += len(datagram)
        try:
            flow.upstream.send(datagram)
        except BlockingIOError:
            return
        except OSError:  # an ICMP error for an earlier datagram: the next endpoint gets this one
            if self._reconnected(flow, key):
                with suppress(OSError):
                    flow.upstream.send(datagram)

    def _new_flow(self, listener: socket.socket, client: Any, local: bytes) -> _Flow | None:
        resources = self._resources
        session = resources.sessions.accept(self.key, client[0].partition("%")[0])
        if session is None:
            return None
        if not session.endpoints:
            session.port.refused += 1
            return None
        if not resources.descriptors.take(1, session.client):
            session.port.turned_away += 1
            return None
        flow = _Flow(session, client, listener, self._reply_info(local))
        if not self._connect(flow, (client, local)):
            resources.descriptors.give(1, session.client)
            return None
        flow.port.flows += 1
        flow.port.active += 1
        if self._timer is None:
            self._timer = resources.loop.call_later(self._idle_s, self._sweep)
        return flow

    def _connect(self, flow: _Flow, key: tuple[Any, bytes]) -> bool:
        for attempt in range(ATTEMPTS):
            target = self._resources.sessions.next_endpoint(flow.session, self._resources.now_s())
            if target is None:
                break
            flow.port.retries += attempt > 0
            upstream = _connected(target)
            if upstream is not None:
                flow.target, flow.upstream = target, upstream
                self._resources.poller.add(upstream, WHILE_READABLE, lambda _: self._to_client(key, flow))
                return True
        flow.port.failures += 1
        return False

    def _reconnected(self, flow: _Flow, key: tuple[Any, bytes]) -> bool:
        """Whether the flow has got another endpoint; otherwise it has ended."""
        flow.port.retries += 1
        self._resources.poller.remove(flow.upstream)
        if self._connect(flow, key):
            return True
        del self._flows[key]
        self._ended(flow)
        return False

    def _to_client(self, key: tuple[Any, bytes], flow: _Flow) -> None:
        for _ in range(BURST):
            try:
                size = flow.upstream.recv_into(self._buffer)
            except BlockingIOError:
                return
            except OSError:
                if flow in self._ending:
                    self._close(flow)
                else:
                    self._reconnected(flow, key)
                return
            if flow not in self._ending:
                flow.used_s = self._resources.now_s()
                self._flows[key] = self._flows.pop(key)
            flow.port.sent_bytes += size
            try:
                flow.listener.sendmsg(
                    [self._buffer[:size]], [(self._level, self._kind, flow.reply_info)], 0, flow.client
                )
            except OSError:  # no buffer is left, or the client is gone: datagrams may be lost
                continue

    def _reply_info(self, local: bytes) -> bytes:
        """Packet information that makes `local`, where the client's datagrams arrive, the source of replies.

        It names an interface for a link-local address only; other replies are routed.
        """
        if self.key.family == "IPv6":
            is_link_local = local[:1] == b"\xfe" and local[1] & 0xC0 == 0x80  # fe80::/10
            return local if is_link_local else local[:16] + bytes(4)
        return bytes(4) + local[4:8] + bytes(4)

    def _sweep(self) -> None:
        """Ends idle flows, and schedules the next sweep for when another one may be idle."""
        self._timer = None
        now_s = self._resources.now_s()
        while self._flows:
            key, flow = next(iter(self._flows.items()))
            if now_s - flow.used_s < self._idle_s:
                self._timer = self._resources.loop.call_later(flow.used_s + self._idle_s - now_s, self._sweep)
                return
            del self._flows[key]
            self._close(flow)

    def _close(self, flow: _Flow) -> None:
        if timer := self._ending.pop(flow, None):
            timer.cancel()
        self._resources.poller.remove(flow.upstream)
        self._ended(flow)

    def _ended(self, flow: _Flow) -> None:
        flow.port.active -= 1
        self._resources.descriptors.give(1, flow.session.client)


def _connected(target: ServiceEndpoint) -> socket.socket | None:
    try:
        upstream = socket.socket(address_family(target.address), socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    except OSError:
        return None
    if upstream.connect_ex((target.address, target.port)):
        upstream.close()
        return None
    return upstream
