"""The sockets of the DNS server, and the servers that answer on them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kdns.answers.chain import Block
from kdns.answers.table import Generations
from kdns.dnsserver.blocks import Server
from kdns.dnsserver.io.interfaces import DnsSockets, Sharing, close_all, dns_sockets, with_closer
from kdns.dnsserver.io.request_metrics import Requests
from kdns.dnsserver.io.stream import Clients, StreamListener
from kdns.dnsserver.io.tcp import TcpListener
from kdns.dnsserver.io.udp import UdpListener
from kdns.errors import ListenError
from kdns.netlink.addresses import InterfaceAddress
from kdns.runtime.connections import shared_ports
from kdns.serverblocks.config import TRANSPORTS, WILDCARD, ListenAddress, label_of
from kdns.serverblocks.listener_options import ListenerOptions

if TYPE_CHECKING:
    from kdns.dnsserver.io.encrypted.quic import QuicListener

ALPN: Final[Mapping[str, tuple[str, ...]]] = {"tls": ("dot",), "https": ("h2", "http/1.1")}
"""The ALPN protocols of each scheme over TLS (RFC 7858, RFC 9113)."""


@dataclass(slots=True)
class Listening:
    """One listening address: bound sockets, and once they are read its server, its listeners and their counters."""

    options: ListenerOptions
    certificate: Any
    """An SSLContext or a QuicConfiguration; None without TLS."""
    sockets: list[DnsSockets] = field(default_factory=list)
    addresses: list[tuple[str, int]] = field(default_factory=list)
    server: Server = field(init=False)
    requests: list[Requests] = field(init=False)
    listeners: list[UdpListener | StreamListener | QuicListener] = field(default_factory=list)

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
        self.clients = Clients()
        self.generations = Generations()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [address for listening in self.places.values() for address in listening.addresses]

    def bind(
        self, places: Mapping[ListenAddress, ListenerOptions], interfaces: tuple[InterfaceAddress, ...]
    ) -> dict[ListenAddress, Listening]:
        """Returns these addresses with certificates, and the new ones with sockets; they may have ports of others.

        Raises ListenError for an address that cannot be bound, CorefileError for an unusable certificate; then nothing
        is bound.
        """
        bound = {place: Listening(options, _certificate(place.scheme, options)) for place, options in places.items()}
        if self._sharing is not Sharing.NONE and any(place.port == 0 for place in places):
            raise ListenError("port 0", "several processes would get a port each: name one")
        leaving = [listening for place, listening in self.places.items() if place not in places]
        new = [place for place in places if place not in self.places]
        with shared_ports(sock for listening in leaving for pair in listening.sockets for sock in pair.all):
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
                for unused in bound.values():
                    close_all(unused.sockets)
                raise
        if self._sharing is Sharing.FIRST:
            self._sharing = Sharing.FURTHER  # after a reload another worker may be the first
        return bound

    def listen(self, place: ListenAddress, bound: Listening, blocks: tuple[Block, ...]) -> Server:
        """Uses these blocks, options and certificate at this address from now on; returns its server."""
        listening = self.places.get(place)
        if listening is None:
            listening = self.places[place] = bound
            self._read(place, bound)
        listening.server.swap(blocks)
        listening.server.options = bound.options
        for listener in listening.listeners:
            listener.use(bound.certificate)
        for requests in listening.requests:
            requests.zone = blocks[0].zone if len(blocks) == 1 else ""
        return listening.server

    async def leave(self, places: Iterable[ListenAddress]) -> None:
        leaving = [self.places.pop(place) for place in places]
        await asyncio.gather(*(listening.close() for listening in leaving))
        for listening in leaving:
            listening.server.swap(())

    async def close(self) -> None:
        for listening in self.places.values():
            await listening.close()

    def _read(self, place: ListenAddress, listening: Listening) -> None:
        """Begins to read the sockets of a new address. Modules for single schemes are imported here."""
        listening.addresses = [sockets.address for sockets in listening.sockets]
        port = listening.addresses[0][1]
        label = label_of(ListenAddress(place.hosts, port, place.scheme))
        server = next((server for server in self.servers if server.label == label), None)
        if server is None:
            server = Server(label, (), place.hosts[0], self.generations, port)
            self.servers.append(server)
        listening.server, listening.requests = server, self.requests.setdefault(label, [])
        for sockets in listening.sockets:
            requests = Requests()
            listening.requests.append(requests)
            if place.scheme == "quic":
                from kdns.dnsserver.io.encrypted.quic import QuicListener  # noqa: PLC0415 - only where it is used

                listening.listeners += [
                    QuicListener(sock, server, requests, self.clients, listening.certificate) for sock in sockets.udp
                ]
            else:
                listening.listeners += [UdpListener(sock, server, requests, self.clients) for sock in sockets.udp]
            if sockets.tcp:
                of_scheme = _stream_listener(place.scheme)
                listener = of_scheme(sockets.tcp, server, requests, self.clients, listening.certificate)
                listening.listeners.append(listener)


def _stream_listener(scheme: str) -> type[StreamListener]:
    if scheme != "https":
        return TcpListener
    from kdns.dnsserver.doh.io import HttpsListener  # noqa: PLC0415 - only where it is used

    return HttpsListener


def _certificate(scheme: str, options: ListenerOptions) -> Any:
    """https:// behind a proxy has none."""
    if options.tls is None or scheme == "dns":
        return None
    if scheme == "quic":
        from kdns.dnsserver.io.encrypted.quic import quic_configuration  # noqa: PLC0415 - only where it is used

        return quic_configuration(options.tls, options.idle_s)
    from kdns.dnsserver.io.encrypted.tls import server_context  # noqa: PLC0415 - only where it is used

    return server_context(options.tls, ALPN[scheme])
