"""Exchanges over HTTPS with servers on loopback, HTTP/2 and HTTP/1.1, and the responses of HTTP that are none."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Literal, TypeAlias, cast

import h2.config
import h2.connection
import h2.events
import pytest
from fake_api_certs import authority
from fake_upstream import answer, fake_server, query_of, respond_to, server_tls, trusting, until, upstream_of

from kdns.dnsserver.doh import exchange
from kdns.dnsserver.doh.http1 import Http1
from kdns.dnsserver.doh.http2 import Http2
from kdns.net import HostPort
from kdns.upstream.io import http, streams
from kdns.upstream.io.http import MEDIA_TYPE
from kdns.upstream.upstream import TlsSpec, UpstreamError, UpstreamSpec, UpstreamTimeoutError

QUERY = query_of("www.example.com", payload_bytes=1232)
Method: TypeAlias = Literal["GET", "POST"]
Protocol: TypeAlias = Literal["h2", "http/1.1"]


@dataclass
class Reply:
    """What a fake server says: `body` makes it of the query; None says nothing."""

    status: HTTPStatus = HTTPStatus.OK
    media_type: str = MEDIA_TYPE
    body: Callable[[bytes], bytes] | None = answer


@dataclass
class FakeDoh:
    """One server; the methods and paths of its requests, and their messages."""

    reply: Reply = field(default_factory=Reply)
    requests: list[tuple[str, str]] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    connections: list["DohConnection"] = field(default_factory=list)

    def message_of(self, request: exchange.HttpRequest) -> bytes:
        path, _, parameters = request.target.partition("?")
        self.requests.append((request.method, path))
        message = exchange.query_of(request)
        assert isinstance(message, bytes)
        assert "=" not in parameters.removeprefix("dns="), "base64url without padding (RFC 8484 §6)"
        self.messages.append(message)
        return message


class DohConnection(asyncio.Protocol):
    """A connection of the version of HTTP that ALPN chose."""

    def __init__(self, doh: FakeDoh) -> None:
        self.doh = doh
        self.codec: Http1 | Http2

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.doh.connections.append(self)
        self.codec = Http2() if transport.get_extra_info("ssl_object").selected_alpn_protocol() == "h2" else Http1()
        transport.write(self.codec.to_send())

    def data_received(self, data: bytes) -> None:
        requests = self.codec.receive(data)
        while requests:
            for request in requests:
                message, reply = self.doh.message_of(request), self.doh.reply
                if reply.body is not None:
                    headers = [("content-type", reply.media_type)]
                    self.codec.respond(request.stream, reply.status, headers, reply.body(message))
            requests = self.codec.receive(b"")
        self.transport.write(self.codec.to_send())

    def go_away(self) -> None:
        self.codec.close()
        self.transport.write(self.codec.to_send())

    def close(self) -> None:
        self.transport.close()


@asynccontextmanager
async def served(folder: Path, protocol: Protocol) -> AsyncIterator[tuple[FakeDoh, UpstreamSpec]]:
    ca, doh, loop = authority("ca"), FakeDoh(), asyncio.get_running_loop()
    tls = server_tls(ca, folder)
    tls.set_alpn_protocols([protocol])
    server = await loop.create_server(lambda: DohConnection(doh), "127.0.0.1", 0, ssl=tls)
    try:
        yield doh, UpstreamSpec(HostPort(*server.sockets[0].getsockname()), "https", trusting(ca, folder))
    finally:
        server.close()
        for connection in doh.connections:
            connection.transport.abort()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("address", "server_name", "expected"),
    [
        (HostPort("192.0.2.1", 443), "", "192.0.2.1"),
        (HostPort("192.0.2.1", 8443), "dns.example.", "dns.example:8443"),
        (HostPort("2001:db8::1", 8443), "", "[2001:db8::1]:8443"),
    ],
)
def test_requests_name_the_server(address: HostPort, server_name: str, expected: str) -> None:
    spec = UpstreamSpec(address, "https", TlsSpec(server_name))
    assert f"\r\nhost: {expected}\r\n".encode() in http.Http1(spec).query(b"", ())[1].lower()
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    server.initiate_connection()
    events = server.receive_data(http.Http2(spec).query(b"", ())[1])
    (request,) = (event for event in events if isinstance(event, h2.events.RequestReceived))
    assert dict(request.headers or ())[b":authority"].decode() == expected


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("protocol", ["h2", "http/1.1"])
async def test_queries_are_requests_on_one_connection(tmp_path: Path, protocol: Protocol, method: Method) -> None:
    async with served(tmp_path, protocol) as (doh, spec), upstream_of(replace(spec, doh_method=method)) as upstream:
        for _ in range(5):
            assert await upstream.exchange(QUERY, "udp", 5.0) == respond_to(QUERY)
        assert set(doh.requests) == {(method, "/dns-query")}
        assert set(doh.messages) == {b"\0\0" + QUERY.packet[2:]}, "equal queries are equal requests"
        assert len(doh.connections) == 1


@pytest.mark.parametrize("protocol", ["h2", "http/1.1"])
async def test_many_at_once(tmp_path: Path, protocol: Protocol) -> None:
    async with served(tmp_path, protocol) as (doh, spec), upstream_of(spec) as upstream:
        exchanges = (upstream.exchange(QUERY, "udp", 20.0) for _ in range(200))
        assert {*await asyncio.gather(*exchanges)} == {respond_to(QUERY)}
        assert len(doh.connections) == streams.CONNECTIONS // 2


@pytest.mark.parametrize("protocol", ["h2", "http/1.1"])
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(status=HTTPStatus.NOT_FOUND), "the response of HTTP is 404 Not Found"),
        (Reply(media_type="text/html"), "the response is text/html, not application/dns-message"),
        (Reply(body=lambda _: b""), "the received message is not a response"),
        (Reply(body=lambda query: query), "the received message is not a response"),
        (Reply(body=lambda query: answer(query).replace(b"exam", b"ample")[:-1]), "about another question"),
        (Reply(body=lambda _: bytes(65536)), "a response of more than 65535 bytes"),
    ],
    ids=["404", "type", "empty", "query", "question", "long"],
)
async def test_responses_of_http_that_are_none(tmp_path: Path, protocol: Protocol, reply: Reply, reason: str) -> None:
    async with served(tmp_path, protocol) as (doh, spec), upstream_of(spec) as upstream:
        doh.reply = reply
        with pytest.raises(UpstreamError, match=reason):
            await upstream.exchange(QUERY, "udp", 5.0)
        doh.reply = Reply()
        assert await upstream.exchange(QUERY, "udp", 5.0) == respond_to(QUERY)


@pytest.mark.parametrize("protocol", ["h2", "http/1.1"])
async def test_a_request_that_is_not_answered(tmp_path: Path, protocol: Protocol) -> None:
    async with served(tmp_path, protocol) as (doh, spec), upstream_of(spec) as upstream:
        doh.reply = Reply(body=None)
        with pytest.raises(UpstreamTimeoutError, match=r"timed out after 0\.2 s"):
            await upstream.exchange(QUERY, "udp", 0.2)


@pytest.mark.parametrize("ends", [DohConnection.go_away, DohConnection.close])
async def test_a_server_that_ends_the_connection(tmp_path: Path, ends: Callable[[DohConnection], None]) -> None:
    async with served(tmp_path, "h2") as (doh, spec), upstream_of(spec) as upstream:
        for number in range(1, 3):
            assert await upstream.exchange(QUERY, "udp", 5.0) == respond_to(QUERY)
            assert len(doh.connections) == number
            ends(doh.connections[-1])
            await until(lambda: not len(upstream.streams.idle))


async def test_what_is_no_http(tmp_path: Path) -> None:
    ca = authority("ca")
    noise = lambda _: [b"\r\n\0 noise \r\n"]  # noqa: E731 - one line of a table
    async with fake_server(tcp=noise, tls=server_tls(ca, tmp_path)) as server:
        spec = replace(server.spec, scheme="https", tls=trusting(ca, tmp_path))
        async with upstream_of(spec) as upstream:
            with pytest.raises(UpstreamError):
                await upstream.exchange(QUERY, "udp", 1.0)


def test_a_status_without_a_name() -> None:
    assert str(http.Incoming(599).outcome()) == "the response of HTTP is 599"


def test_a_status_that_is_no_number_ends_the_connection() -> None:
    """Anything but an UpstreamError would be in the log with its stack, for each attempt and each health check."""
    framing = http.Http2(UpstreamSpec(HostPort("127.0.0.1", 443), "https"))
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    server.initiate_connection()
    number, wire = framing.query(QUERY.packet[2:], ())
    server.receive_data(wire)
    server.send_headers(cast("int", number), [(":status", "2OO")], end_stream=True)
    with pytest.raises(UpstreamError, match="does not speak HTTP/2"):
        framing.received(server.data_to_send())


async def test_a_cancelled_request_leaves_its_connection(tmp_path: Path) -> None:
    async with served(tmp_path, "h2") as (doh, spec), upstream_of(spec) as upstream:
        doh.reply.body = None
        for number in range(1, 11):
            asking = asyncio.ensure_future(upstream.exchange(QUERY, "tcp", 60.0))
            await until(lambda number=number: len(doh.messages) == number)  # type: ignore[misc]
            asking.cancel()
            await asyncio.wait([asking])
        doh.reply.body = answer
        assert await upstream.exchange(QUERY, "tcp", 60.0) == respond_to(QUERY)
        assert len(doh.connections) <= streams.CONNECTIONS // 2
