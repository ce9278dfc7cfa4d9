"""The sockets of the DNS server, and the servers that answer on them."""

from __future__ import annotations

from kdns.aio.dns.interfaces import WILDCARD, addressed_sockets, dns_sockets
from kdns.aio.dns.request_metrics import Requests
from kdns.aio.dns.tcp import TcpClients, TcpListener
from kdns.aio.dns.udp import Misses, UdpListener
from kdns.aio.netlink.addresses import InterfaceAddress
from kdns.dns.table import Generations
from kdns.net import join_host_port
from kdns.plugins.server import Block, Server
from kdns.plugins.server_config import Place


class Listeners:
    """All bound sockets. They stay bound while the blocks behind them change.

    `servers` are by place, `requests` what their listeners saw by the server's label, `addresses` where they listen.
    """

    def __init__(self) -> None:
        self.servers: dict[Place, Server] = {}
        self.requests: dict[str, list[Requests]] = {}
        self.addresses: list[tuple[str, int]] = []
        self._clients = TcpClients()
        self._listeners: list[UdpListener | TcpListener] = []
        self._misses = Misses()
        self._generations = Generations()

    async def listen(self, place: Place, blocks: tuple[Block, ...], interfaces: tuple[InterfaceAddress, ...]) -> Server:
        """A server of these blocks at this place; ListenError for an address that cannot be had."""
        hosts, port = place
        sockets = dns_sockets(hosts, port)
        port = sockets[0].port
        label = f"dns://:{port}" if hosts == WILDCARD else f"dns://{join_host_port(hosts[0], port)}"
        server = Server(label, blocks, hosts[0], self._generations, port)
        for pair in sockets:
            requests = Requests(zone=_only_zone(blocks))
            udp = UdpListener(pair.udp, server, requests, self._misses)
            self._listeners += [udp, TcpListener(pair.tcp, server, requests, self._clients)]
            if hosts == WILDCARD:
                closer = addressed_sockets(pair.udp, interfaces)
                self._listeners += [UdpListener(sock, server, requests, self._misses) for sock in closer]
            self.requests.setdefault(label, []).append(requests)
            self.addresses.append(udp.address)
        self.servers[place] = server
        return server

    def swap(self, place: Place, blocks: tuple[Block, ...]) -> None:
        """Answer at this place with these blocks from now on."""
        server = self.servers[place]
        for requests in self.requests[server.label]:
            requests.zone = _only_zone(blocks)
        server.swap(blocks)

    async def close(self) -> None:
        """Answer what has arrived, then close the sockets."""
        for listener in self._listeners:
            await listener.close()


def _only_zone(blocks: tuple[Block, ...]) -> str:
    return blocks[0].zone if len(blocks) == 1 else ""
