"""The sockets of the DNS server, and the servers that answer on them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from kdns.answers.chain import Block
from kdns.answers.table import Generations
from kdns.dnsserver.blocks import Server
from kdns.dnsserver.io.burst.sampling import Sampling
from kdns.dnsserver.io.interfaces import DnsSockets, Sharing, close_all, dns_sockets, with_closer
from kdns.dnsserver.io.request_metrics import Requests
from kdns.dnsserver.io.stream import StreamListener, TcpClients
from kdns.dnsserver.io.tcp import TcpListener
from kdns.dnsserver.io.udp import MissQueue, UdpListener
from kdns.errors import ListenError
from kdns.netlink.addresses import InterfaceAddress
from kdns.runtime.client_memory import ClientMemory
from kdns.runtime.connections import shared_ports
from kdns.serverblocks.config import TRANSPORTS, WILDCARD, ListenAddress, label_of
from kdns.serverblocks.listener_options import ListenerOptions

ALPN: Final[Mapping[str, tuple[str, ...]]] = {"tls": ("dot",), "https": ("h2", "http/1.1")}
"""The ALPN protocols of each scheme over TLS (RFC 7858, RFC 9113)."""


class DnsListener(Protocol):
    """A reader of a bound socket."""

    def use(self, certificate: Any) -> None:
        """Applies changed options and the certificate to new connections."""
        ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class Bound:
    """Bound sockets before anything is read, and the certificate as an SSLContext or a QuicConfiguration."""

    sockets: list[DnsSockets]
    options: ListenerOptions
    certificate: Any = None

    @property
    def port(self) -> int:
        return self.sockets[0].address[1]


@dataclass(slots=True)
class Listening:
    """One listening address: its server, its listeners and their counters."""

    server: Server
    requests: list[Requests]
    addresses: list[tuple[str, int]] = field(default_factory=list)
    listeners: list[DnsListener] = field(default_factory=list)
    sockets: list[socket.socket] = field(default_factory=list)

    def use(self, bound: Bound) -> None:
        """Applies the options of the blocks to new connections."""
        self.server.options = bound.options
        for listener in self.listeners:
            listener.use(bound.certificate)

    async def close(self) -> None:
        await asyncio.gather(*(listener.close() for listener in self.listeners))


class Listeners:
    """All bound sockets. They stay bound while the blocks change.

    `requests` are the counters of their listeners by the server's label, and `servers` their servers; both keep those
    of closed addresses, because metrics must not lose counts. `sharing` lets other processes bind the same addresses.
    """

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self.servers: list[Server] = []
        self.requests: dict[str, list[Requests]] = {}
        self.places: dict[ListenAddress, Listening] = {}
        memory = ClientMemory()
        self._clients = TcpClients(memory)
        self._misses = MissQueue(memory)
        self.sampling = Sampling()
        self.generations = Generations()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [address for listening in self.places.values() for address in listening.addresses]

    def bind(
        self, places: Mapping[ListenAddress, ListenerOptions], interfaces: tuple[InterfaceAddress, ...]
    ) -> dict[ListenAddress, Bound]:
        """Returns sockets and TLS contexts for these addresses; new addresses may reuse sockets of others.

        Raises ListenError for an address that cannot be bound, CorefileError for an unusable certificate; then nothing
        is bound.
        """
        bound = {place: _certified(place, options) for place, options in places.items()}
        if self._sharing is not Sharing.NONE and any(place.port == 0 for place in places):
            raise ListenError("port 0", "several processes would get a port each: name one")
        leaving = [listening for place, listening in self.places.items() if place not in places]
        new = [place for place in places if place not in self.places]
        with shared_ports(sock for listening in leaving for sock in listening.sockets):
            try:
                for place in new:
                    is_shared = any(place.port == other.port for other in self.places)
                    sockets = dns_sockets(
                        place.hosts, place.port, TRANSPORTS[place.scheme], is_shared=is_shared, sharing=self._sharing
                    )
                    if place.hosts == WILDCARD:
                        sockets = [with_closer(pair, interfaces, self._sharing) for pair in sockets]
                    bound[place].sockets = sockets
            except ListenError:
                self.unbind(bound)
                raise
        if self._sharing is Sharing.FIRST:
            self._sharing = Sharing.FURTHER  # after a reload another worker may be the first
        return bound

    def unbind(self, bound: Mapping[ListenAddress, Bound]) -> None:
        for unused in bound.values():
            close_all(unused.sockets)

    def listen(self, place: ListenAddress, bound: Bound, blocks: tuple[Block, ...]) -> Server:
        """Uses these blocks at this address from now on; returns its server, the existing one if there is one."""
        listening = self.places.get(place)
        if listening is None:
            listening = self.places[place] = self._listening(place, bound, blocks)
        else:
            listening.server.swap(blocks)
        listening.use(bound)
        for requests in listening.requests:
            requests.zone = _only_zone(blocks)
        return listening.server

    async def leave(self, places: Iterable[ListenAddress]) -> None:
        leaving = [self.places.pop(place) for place in places]
        await asyncio.gather(*(listening.close() for listening in leaving))
        for listening in leaving:
            listening.server.swap(())

    async def close(self) -> None:
        for listening in self.places.values():
            await listening.close()

    def _listening(self, place: ListenAddress, bound: Bound, blocks: tuple[Block, ...]) -> Listening:
        label = label_of(ListenAddress(place.hosts, bound.port, place.scheme))
        server = next((server for server in self.servers if server.label == label), None)
        if server is None:
            server = Server(label, blocks, place.hosts[0], self.generations, bound.port)
            self.servers.append(server)
        else:
            server.swap(blocks)
        listening = Listening(server, self.requests.setdefault(label, []))
        for sockets in bound.sockets:
            requests = Requests()
            listening.requests.append(requests)
            listening.addresses.append(sockets.address)
            listening.sockets += sockets.all
            self._read(place.scheme, sockets, listening, requests, bound)
        return listening

    def _read(self, scheme: str, sockets: DnsSockets, listening: Listening, requests: Requests, bound: Bound) -> None:
        """Begins to read the sockets. Modules for single schemes are imported here."""
        server, listeners = listening.server, listening.listeners
        if scheme == "quic":
            from kdns.dnsserver.io.encrypted.quic import QuicEndpoint, QuicListener  # noqa: PLC0415 - only where it is used

            endpoint = QuicEndpoint(server, requests, self._clients, bound.certificate)
            listeners += [QuicListener(sock, endpoint) for sock in sockets.udp]
            return
        for sock in sockets.udp:
            listeners.append(UdpListener(sock, server, requests, self._misses, self.sampling))
        if sockets.tcp:
            of_scheme = _stream_listener(scheme)
            listeners.append(of_scheme(sockets.tcp, server, requests, self._clients, bound.certificate))


def _stream_listener(scheme: str) -> type[StreamListener]:
    if scheme != "https":
        return TcpListener
    from kdns.dnsserver.doh.io import HttpsListener  # noqa: PLC0415 - only where it is used

    return HttpsListener


def _certified(place: ListenAddress, options: ListenerOptions) -> Bound:
    """Returns an address with its certificate, if any: https:// behind a proxy has none."""
    bound, config = Bound([], options), options.tls
    if config is None or place.scheme == "dns":
        return bound
    if place.scheme == "quic":
        from kdns.dnsserver.io.encrypted.quic import quic_configuration  # noqa: PLC0415 - only where it is used

        bound.certificate = quic_configuration(config, options.idle_s)
    else:
        from kdns.dnsserver.io.encrypted.tls import server_context  # noqa: PLC0415 - only where it is used

        bound.certificate = server_context(config, ALPN[place.scheme])
    return bound


def _only_zone(blocks: tuple[Block, ...]) -> str:
    return blocks[0].zone if len(blocks) == 1 else ""
