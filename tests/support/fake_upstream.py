"""Servers on loopback that answer queries as a test says, and upstreams that ask them."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from dns_chain import read
from dns_client import packet
from fake_api_certs import Authority, issue

from kdns.dns.query import Query
from kdns.net import HostPort
from kdns.upstream.io.exchanges import Exchanges
from kdns.upstream.io.upstreams import SocketUpstream
from kdns.upstream.upstream import TlsSpec, UpstreamError, UpstreamSpec

Responses: TypeAlias = Callable[[bytes], Iterable[bytes]]
"""What is sent back for a query, message by message."""
ADDRESS = bytes((192, 0, 2, 1))
RECORD = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04" + ADDRESS
"""An A record of the question's name."""


def answer(query: bytes, record: bytes = RECORD) -> bytes:
    """A response to a query with one record, and without OPT."""
    question = question_bytes(query)
    return query[:2] + b"\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00" + question + record


def question_bytes(query: bytes) -> bytes:
    return query[12 : read(query).question_end]


def honest(query: bytes) -> list[bytes]:
    return [answer(query)]


def query_of(name: str = "www.Example.com", **options: Any) -> Query:
    return read(packet(name, **options))


def respond_to(query: Query, record: bytes = RECORD) -> bytes:
    """The response that an exchange of this query gives."""
    return answer(query.packet, record)


@dataclass
class Silent:
    """Answers nothing, and remembers the queries."""

    queries: list[bytes] = field(default_factory=list)

    def __call__(self, query: bytes) -> list[bytes]:
        self.queries.append(query)
        return []


@dataclass
class FakeServer:
    """UDP and TCP on one port of 127.0.0.1; what it received, and the ports that queries came from.

    `closes` has each TCP connection closed after its first response.
    """

    udp: Responses = honest
    tcp: Responses = honest
    closes: bool = False
    received: list[bytes] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    streamed: list[bytes] = field(default_factory=list)
    connections: list[asyncio.StreamWriter] = field(default_factory=list)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    port: int = 0
    sock: socket.socket = field(default_factory=lambda: socket.socket(type=socket.SOCK_DGRAM))

    @property
    def spec(self) -> UpstreamSpec:
        return UpstreamSpec(HostPort("127.0.0.1", self.port))

    async def bind(self, tls: ssl.SSLContext | None) -> asyncio.Server:
        """Binds both sockets to a port that is free for UDP and TCP; returns the server over TCP."""
        while True:
            listener = await asyncio.start_server(self.serve_stream, "127.0.0.1", 0, ssl=tls)
            self.port = listener.sockets[0].getsockname()[1]
            try:
                self.sock.bind(("127.0.0.1", self.port))
            except OSError:
                listener.close()
                await listener.wait_closed()
            else:
                self.sock.setblocking(False)
                return listener

    def read_datagrams(self) -> None:
        while True:
            try:
                query, client = self.sock.recvfrom(65535)
            except BlockingIOError:
                return
            self.received.append(query)
            self.ports.append(client[1])
            for response in self.udp(query):
                self.sock.sendto(response, client)

    async def serve_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        if task := asyncio.current_task():
            self.tasks.append(task)
        try:
            while True:
                query = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
                self.streamed.append(query)
                for response in self.tcp(query):
                    writer.write(len(response).to_bytes(2, "big") + response)
                if self.closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def fake_server(
    udp: Responses = honest, tcp: Responses = honest, *, closes: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeServer]:
    server = FakeServer(udp, tcp, closes)
    loop = asyncio.get_running_loop()
    with server.sock as sock:
        listener = await server.bind(tls)
        loop.add_reader(sock, server.read_datagrams)
        try:
            yield server
        finally:
            loop.remove_reader(sock)
            listener.close()
            for writer in server.connections:
                writer.transport.abort()
            await asyncio.gather(*server.tasks)
            await listener.wait_closed()


@asynccontextmanager
async def upstream_of(
    spec: UpstreamSpec, *, max_exchanges: int = 4096, max_descriptors: int = 1000
) -> AsyncIterator[SocketUpstream]:
    """An upstream that leaves nothing behind: its exchanges have ended and its descriptors are closed."""
    exchanges = Exchanges(max_exchanges, max_descriptors)
    upstream = SocketUpstream(spec, exchanges)
    try:
        yield upstream
    finally:
        upstream.close()
        left = len(exchanges), exchanges.descriptors
        exchanges.close()
        assert left == (0, 0)


async def until(is_so: Callable[[], bool]) -> None:
    """Let others work until it is so."""
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - what is waited for raises no event
            await asyncio.sleep(0)


async def answers_at(server: int | UpstreamSpec) -> None:
    """Wait for a server that starts, of plain DNS on this port or of this kind."""
    spec = server if isinstance(server, UpstreamSpec) else UpstreamSpec(HostPort("127.0.0.1", server))
    async with upstream_of(spec) as upstream, asyncio.timeout(60):
        while True:
            try:
                await upstream.exchange(query_of("ns.example.org"), "tcp", 1.0)
            except UpstreamError:
                await asyncio.sleep(0.05)
            else:
                return


def server_tls(ca: Authority, folder: Path, hosts: Sequence[str] = ("127.0.0.1",), end_h: float = 1) -> ssl.SSLContext:
    """The TLS of a server for these hosts, whose certificate ends in so many hours."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*issue(ca, "server", folder, hosts, end_h))
    return made


def trusting(ca: Authority, folder: Path, **fields: str) -> TlsSpec:
    """What an upstream is made of that trusts this authority only."""
    path = folder / "ca.pem"
    path.write_bytes(ca.pem)
    return TlsSpec(ca_path=str(path), **fields)
