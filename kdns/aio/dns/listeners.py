"""The sockets of the DNS server, and the servers that answer on them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from kdns.aio.connections import shared_ports
from kdns.aio.dns.interfaces import DnsSockets, close_all, dns_sockets, with_closer
from kdns.aio.dns.request_metrics import Requests
from kdns.aio.dns.tcp import ConnectionLimits, TcpClients, TcpListener
from kdns.aio.dns.udp import Misses, UdpListener
from kdns.aio.netlink.addresses import InterfaceAddress
from kdns.dns.table import Generations
from kdns.errors import ListenError
from kdns.plugins.listener import ListenerOptions, TlsConfig
from kdns.plugins.server import Block, Server
from kdns.plugins.server_config import TRANSPORTS, WILDCARD, Place, label_of

ALPN: Final[Mapping[str, tuple[str, ...]]] = {"tls": ("dot",)}
"""The protocols of each scheme that a client may ask for within TLS (RFC 7858)."""


class DnsListener(Protocol):
    """What reads a bound socket."""

    async def close(self) -> None:
        """Answer what has arrived, then close the socket."""
        ...


@dataclass(slots=True)
class Bound:
    """What is ready to be listened on: bound sockets and a TLS context; nothing is read yet."""

    sockets: list[DnsSockets]
    options: ListenerOptions
    tls: ssl.SSLContext | None = None

    @property
    def port(self) -> int:
        """The port of all of them."""
        return self.sockets[0].address[1]


@dataclass(slots=True)
class Listening:
    """One place that is listened on: its server, the listeners, and what they may and have seen."""

    server: Server
    requests: list[Requests]
    addresses: list[tuple[str, int]] = field(default_factory=list)
    listeners: list[DnsListener] = field(default_factory=list)
    sockets: list[socket.socket] = field(default_factory=list)
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)

    def use(self, options: ListenerOptions, tls: ssl.SSLContext | None) -> None:
        """Serve connections as these options say from now on."""
        self.limits.use(options)
        for listener in self.listeners:
            if isinstance(listener, TcpListener):
                listener.use(tls)

    async def close(self) -> None:
        """Answer what has arrived, then close the sockets."""
        await asyncio.gather(*(listener.close() for listener in self.listeners))


class Listeners:
    """All bound sockets. They stay bound while the blocks behind them change.

    `requests` are what their listeners saw by the server's label; those of places that were left are among them, as
    are their servers in `servers`: what was counted stays counted.
    """

    def __init__(self) -> None:
        self.servers: list[Server] = []
        self.requests: dict[str, list[Requests]] = {}
        self.places: dict[Place, Listening] = {}
        self._clients = TcpClients()
        self._misses = Misses()
        self._generations = Generations()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where is listened."""
        return [address for listening in self.places.values() for address in listening.addresses]

    def bind(
        self, places: Mapping[Place, ListenerOptions], interfaces: tuple[InterfaceAddress, ...]
    ) -> dict[Place, Bound]:
        """Sockets and TLS contexts for these places: sockets of those that are new, which may be taken from others.

        Raises ListenError for an address that cannot be had, CorefileError for a certificate that cannot be used; then
        nothing is bound.
        """
        bound = {place: Bound([], options, _tls_context(place, options.tls)) for place, options in places.items()}
        leaving = [listening for place, listening in self.places.items() if place not in places]
        new = [place for place in places if place not in self.places]
        with shared_ports(sock for listening in leaving for sock in listening.sockets):
            try:
                for place in new:
                    is_shared = any(place.port == other.port for other in self.places)
                    sockets = dns_sockets(place.hosts, place.port, TRANSPORTS[place.scheme], is_shared=is_shared)
                    if place.hosts == WILDCARD:
                        sockets = [with_closer(each, interfaces) for each in sockets]
                    bound[place].sockets = sockets
            except ListenError:
                self.unbind(bound)
                raise
        return bound

    def unbind(self, bound: Mapping[Place, Bound]) -> None:
        """Close what was bound and will not be listened on."""
        for each in bound.values():
            close_all(each.sockets)

    def listen(self, place: Place, bound: Bound, blocks: tuple[Block, ...]) -> Server:
        """Answer with these blocks at this place from now on; the server is the one that was there before, if any."""
        listening = self.places.get(place)
        if listening is None:
            listening = self.places[place] = self._listening(place, bound, blocks)
        else:
            listening.server.swap(blocks)
        listening.use(bound.options, bound.tls)
        for requests in listening.requests:
            requests.zone = _only_zone(blocks)
        return listening.server

    async def leave(self, places: Iterable[Place]) -> None:
        """Answer what has arrived there, then close the sockets."""
        leaving = [self.places.pop(place) for place in places]
        await asyncio.gather(*(listening.close() for listening in leaving))
        for listening in leaving:
            listening.server.swap(())

    async def close(self) -> None:
        """Answer what has arrived everywhere, then close the sockets."""
        for listening in self.places.values():
            await listening.close()

    def _listening(self, place: Place, bound: Bound, blocks: tuple[Block, ...]) -> Listening:
        label = label_of(Place(place.hosts, bound.port, place.scheme))
        server = next((server for server in self.servers if server.label == label), None)
        if server is None:
            server = Server(label, blocks, place.hosts[0], self._generations, bound.port)
            self.servers.append(server)
        else:
            server.swap(blocks)
        listening = Listening(server, self.requests.setdefault(label, []))
        for sockets in bound.sockets:
            requests = Requests()
            listening.requests.append(requests)
            listening.addresses.append(sockets.address)
            listening.sockets += sockets.all
            self._read(sockets, listening, requests, bound)
        return listening

    def _read(
        self,
        sockets: DnsSockets,
        listening: Listening,
        requests: Requests,
        bound: Bound,
    ) -> None:
        server, listeners = listening.server, listening.listeners
        if sockets.tcp:
            listeners.append(TcpListener(sockets.tcp, server, requests, self._clients, bound.tls, listening.limits))
        if sockets.udp:
            for sock in (sockets.udp, *sockets.closer):
                listeners.append(UdpListener(sock, server, requests, self._misses))


def _tls_context(place: Place, config: TlsConfig | None) -> ssl.SSLContext | None:
    """The context of an encrypted place; None for dns://, and for https:// behind a proxy."""
    if config is None or place.scheme not in ALPN:
        return None
    from kdns.aio.dns.encrypted.tls import server_context  # noqa: PLC0415 - only where it is used

    return server_context(config, ALPN[place.scheme])


def _only_zone(blocks: tuple[Block, ...]) -> str:
    return blocks[0].zone if len(blocks) == 1 else ""
