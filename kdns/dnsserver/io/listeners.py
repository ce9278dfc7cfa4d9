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
    """One listening address: its bound sockets; once they are read, its server, listeners and counters."""

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
    """All bound sockets, which stay bound while the blocks change.

    `servers`, and `requests` by the server's label, include closed addresses, because metrics must not lose counts.
    `sharing` lets other processes bind the same addresses.
    """

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self.servers: list[Server] = []
        self.requests: dict[str, list[Requests]] = {}
        self.listening: dict[ListenAddress, Listening] = {}
        self.clients = Clients()
        self.generations = Generations()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [address for listening in self.listening.values() for address in listening.addresses]

    def bind(
        self, options: Mapping[ListenAddress, ListenerOptions], interfaces: tuple[InterfaceAddress, ...]
    ) -> dict[ListenAddress, Listening]:
        """Loads the certificates of these addresses, and binds the new ones; they may share ports with leaving ones.

        Raises ListenError for an address that cannot be bound, CorefileError for an unusable certificate; then nothing
        is bound.
        """
        bound = {address: Listening(own, _certificate(address.scheme, own)) for address, own in options.items()}
        if self._sharing is not Sharing.NONE and any(address.port == 0 for address in options):
            raise ListenError("port 0", "several processes would get a port each: name one")
        leaving = [listening for address, listening in self.listening.items() if address not in options]
        new = [address for address in options if address not in self.listening]
        with shared_ports(sock for listening in leaving for pair in listening.sockets for sock in pair.all):
            try:
                for address in new:
                    is_shared = any(address.port == other.port for other in self.listening)
                    transports = TRANSPORTS[address.scheme]
                    sockets = dns_sockets(
                        address.hosts, address.port, transports, is_shared=is_shared, sharing=self._sharing
                    )
                    if address.hosts == WILDCARD:
                        sockets = [with_closer(pair, interfaces, self._sharing) for pair in sockets]
                    bound[address].sockets = sockets
            except ListenError:
                for unused in bound.values():
                    close_all(unused.sockets)
                raise
        if self._sharing is Sharing.FIRST:
            self._sharing = Sharing.FURTHER  # after a reload another worker may be the first
        return bound

    def listen(self, address: ListenAddress, bound: Listening, blocks: tuple[Block, ...]) -> Server:
        """Switches an address to these blocks, options and certificate."""
        listening = self.listening.get(address)
        if listening is None:
            listening = self.listening[address] = bound
            self._read(address, bound)
        listening.server.swap(blocks)
        listening.server.options = bound.options
        for listener in listening.listeners:
            listener.use(bound.certificate)
        for requests in listening.requests:
            requests.zone = blocks[0].zone if len(blocks) == 1 else ""
        return listening.server

    async def leave(self, addresses: Iterable[ListenAddress]) -> None:
        leaving = [self.listening.pop(address) for address in addresses]
        await asyncio.gather(*(listening.close() for listening in leaving))
        for listening in leaving:
            listening.server.swap(())

    async def close(self) -> None:
        for listening in self.listening.values():
            await listening.close()

    def _read(self, address: ListenAddress, listening: Listening) -> None:
        """Starts to read the sockets of a new address. Modules for single schemes are imported here."""
        listening.addresses = [sockets.address for sockets in listening.sockets]
        port = listening.addresses[0][1]
        label = label_of(ListenAddress(address.hosts, port, address.scheme))
        server = next((server for server in self.servers if server.label == label), None)
        if server is None:
            server = Server(label, (), address.hosts[0], self.generations, port)
            self.servers.append(server)
        listening.server, listening.requests = server, self.requests.setdefault(label, [])
        for sockets in listening.sockets:
            requests = Requests()
            listening.requests.append(requests)
            if address.scheme == "quic":
                from kdns.dnsserver.io.encrypted.quic import QuicListener  # noqa: PLC0415 - only where it is used

                listening.listeners += [
                    QuicListener(sock, server, requests, self.clients, listening.certificate) for sock in sockets.udp
                ]
            else:
                listening.listeners += [UdpListener(sock, server, requests, self.clients) for sock in sockets.udp]
            if sockets.tcp:
                kind = _stream_listener(address.scheme)
                listening.listeners.append(kind(sockets.tcp, server, requests, self.clients, listening.certificate))


def _stream_listener(scheme: str) -> type[StreamListener]:
    if scheme != "https":
        return TcpListener
    from kdns.dnsserver.doh.io import HttpsListener  # noqa: PLC0415 - only where it is used

    return HttpsListener


def _certificate(scheme: str, options: ListenerOptions) -> Any:
    """None for https:// behind a proxy that has the certificate."""
    if options.tls is None or scheme == "dns":
        return None
    if scheme == "quic":
        from kdns.dnsserver.io.encrypted.quic import quic_configuration  # noqa: PLC0415 - only where it is used

        return quic_configuration(options.tls, options.idle_s)
    from kdns.dnsserver.io.encrypted.tls import server_context  # noqa: PLC0415 - only where it is used

    return server_context(options.tls, ALPN[scheme])
