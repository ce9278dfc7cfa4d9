"""Exchanges over HTTPS with servers on loopback, HTTP/2 and HTTP/1.1, and the responses of HTTP that are none."""

from __future__ import annotations

import asyncio
import ssl
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import parse_qs, urlsplit

import h2.config
import h2.connection
import h2.events
import pytest
from aiohttp import web
from fake_api_certs import authority
from fake_upstream import answer, fake_server, query_of, respond_to, server_tls, trusting, until, upstream_of

from kdns.net import HostPort
from kdns.upstream.io import streams
from kdns.upstream.io.http import MEDIA_TYPE, Http2
from kdns.upstream.upstream import UpstreamError, UpstreamSpec, UpstreamTimeoutError

QUERY = query_of("www.example.com", payload_bytes=1232)
Method: TypeAlias = Literal["GET", "POST"]
Protocol: TypeAlias = Literal["h2", "http/1.1"]


@dataclass
class Reply:
    """What a fake server says: `body` makes it of the query; None says nothing."""

    status: int = 200
    media_type: str = MEDIA_TYPE
    body: Callable[[bytes], bytes] | None = answer


@dataclass
class FakeDoh:
    """One server; the requests it had, and their messages."""

    reply: Reply = field(default_factory=Reply)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    connections: list[Any] = field(default_factory=list)
    port: int = 0

    def note(self, method: str, host: str, path: str, body: bytes) -> bytes:
        parts = urlsplit(path)
        self.requests.append((method, host, parts.path))
        if method == "GET":
            (encoded,) = parse_qs(parts.query)["dns"]
            assert "=" not in encoded, "base64url without padding (RFC 8484 §6)"
            body = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        self.messages.append(body)
        return body


class H2Server(asyncio.Protocol):
    """HTTP/2 on one connection."""

    def __init__(self, doh: FakeDoh) -> None:
        self.doh = doh
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.heads: dict[int, dict[str, str]] = {}
        self.bodies: dict[int, bytes] = {}
        self.unsent: dict[int, bytes] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.doh.connections.append(self)
        self.http.initiate_connection()
        transport.write(self.http.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self.http.receive_data(data):
            match event:
                case h2.events.RequestReceived(stream_id=number, headers=headers):
                    self.heads[number] = {str(name): str(value) for name, value in headers or ()}
                    self.bodies[number] = b""
                case h2.events.DataReceived(stream_id=number, data=body):
                    self.bodies[number] += body or b""
                case h2.events.StreamEnded(stream_id=number):
                    self.respond(number)
                case h2.events.WindowUpdated():
                    for number in [*self.unsent]:
                        self.send_on(number)
        self.transport.write(self.http.data_to_send())

    def respond(self, number: int) -> None:
        head, reply = self.heads[number], self.doh.reply
        message = self.doh.note(head[":method"], head[":authority"], head[":path"], self.bodies[number])
        if reply.body is not None:
            self.http.send_headers(number, [(":status", str(reply.status)), ("content-type", reply.media_type)])
            self.unsent[number] = reply.body(message)
            self.send_on(number)

    def send_on(self, number: int) -> None:
        """Send what flow control lets through."""
        while number in self.unsent:
            size = min(self.http.local_flow_control_window(number), self.http.max_outbound_frame_size)
            data, rest = self.unsent[number][:size], self.unsent[number][size:]
            if rest and not size:
                return
            self.unsent[number] = rest
            self.http.send_data(number, data, end_stream=not rest)
            if not rest:
                del self.unsent[number]

    def go_away(self) -> None:
        self.http.close_connection()
        self.transport.write(self.http.data_to_send())

    def close(self) -> None:
        self.transport.close()


@asynccontextmanager
async def http2_server(doh: FakeDoh, tls: ssl.SSLContext) -> AsyncIterator[None]:
    tls.set_alpn_protocols(["h2"])
    server = await asyncio.get_running_loop().create_server(lambda: H2Server(doh), "127.0.0.1", 0, ssl=tls)
    doh.port = server.sockets[0].getsockname()[1]
    try:
        yield
    finally:
        server.close()
        for connection in doh.connections:
            connection.transport.abort()
        await server.wait_closed()


@asynccontextmanager
async def http1_server(doh: FakeDoh, tls: ssl.SSLContext) -> AsyncIterator[None]:
    async def handle(request: web.Request) -> web.Response:
        if request.transport not in doh.connections:
            doh.connections.append(request.transport)
        message = doh.note(request.method, request.host, request.path_qs, await request.read())
        if doh.reply.body is None:
            await asyncio.sleep(60)
        body = (doh.reply.body or answer)(message)
        return web.Response(status=doh.reply.status, content_type=doh.reply.media_type, body=body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    doh.port = runner.addresses[0][1]
    try:
        yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def served(folder: Path, protocol: Protocol) -> AsyncIterator[tuple[FakeDoh, UpstreamSpec]]:
    ca = authority("ca")
    doh = FakeDoh()
    server = http2_server if protocol == "h2" else http1_server
    async with server(doh, server_tls(ca, folder)):
        yield doh, UpstreamSpec(HostPort("127.0.0.1", doh.port), "https", trusting(ca, folder))


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("protocol", ["h2", "http/1.1"])
async def test_queries_are_requests_on_one_connection(tmp_path: Path, protocol: Protocol, method: Method) -> None:
    async with (
        served(tmp_path, protocol) as (doh, spec),
        upstream_of(replace(spec, doh_method=method)) as upstream,
    ):
        for _ in range(5):
            assert await upstream.exchange(QUERY, "udp", 5.0) == respond_to(QUERY)
        assert set(doh.requests) == {(method, f"127.0.0.1:{doh.port}", "/dns-query")}
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
        (Reply(status=404), "the response of HTTP is 404 Not Found"),
        (Reply(status=599), "the response of HTTP is 599"),
        (Reply(media_type="text/html"), "the response is text/html, not application/dns-message"),
        (Reply(body=lambda _: b""), "the received message is not a response"),
        (Reply(body=lambda query: query), "the received message is not a response"),
        (Reply(body=lambda query: answer(query).replace(b"exam", b"ample")[:-1]), "about another question"),
        (Reply(body=lambda _: bytes(65536)), "a response of more than 65535 bytes"),
    ],
    ids=["404", "599", "type", "empty", "query", "question", "long"],
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


@pytest.mark.parametrize("ends", [H2Server.go_away, H2Server.close])
async def test_a_server_that_ends_the_connection(tmp_path: Path, ends: Callable[[H2Server], None]) -> None:
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


def test_a_status_that_is_no_number_ends_the_connection() -> None:
    """Anything but an UpstreamError would be in the log with its stack, for each attempt and each health check."""
    framing = Http2(UpstreamSpec(HostPort("127.0.0.1", 443), "https"))
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
