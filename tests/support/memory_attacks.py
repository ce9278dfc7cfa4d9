"""Clients that make a server hold as much as it lets them: each opens connections, sends, and reads nothing more."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import h2.connection
import h2.exceptions
import h2.settings
import hpack
from aioquic.asyncio.client import connect
from aioquic.quic.configuration import QuicConfiguration
from dns_client import framed, packet, with_options
from encrypted_server import DoqClient
from http2_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GREETING,
    HEADERS,
    POST,
    RST_STREAM,
    frame,
    setting,
    window,
)

CLIENTS: Final = range(2)
"""Connections of an attack, each from an address of its own."""
PADDING: Final = 12
TYPE: Final = ("content-type", "application/dns-message")
LATE: Final = "late.test"
"""Names below it are forwarded to a server that does not answer."""
MANY: Final = "many.test"
"""This name has an answer of nearly 64 KiB."""


def padded(name: str, size_bytes: int, number: int = 0) -> bytes:
    """A query of this size."""
    query = packet(name, number=number, payload_bytes=4096)
    return with_options(query, (PADDING, bytes(size_bytes - len(query) - 4)))


class LeavingClient(DoqClient):
    async def wait_closed(self) -> None:
        """Does not wait for what is not acknowledged: an attacker leaves."""


@dataclass
class Target:
    """The ports of a server by scheme, and the certificate to trust."""

    ports: Mapping[str, int]
    ca: Path
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def sent(self, scheme: str, data: bytes, number: int = 0, alpn: str = "") -> None:
        """Opens a connection from the address 127.0.0.1 + number, sends as much as is taken, and leaves it open."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            sock.bind((f"127.0.0.{number + 1}", 0))
            await asyncio.wait_for(loop.sock_connect(sock, ("127.0.0.1", self.ports[scheme])), 10)
            if not alpn:
                self.stack.callback(sock.close)
                self.stack.callback(asyncio.create_task(_all_sent(loop, sock, data)).cancel)
                return
            context = ssl.create_default_context(cafile=str(self.ca))
            context.set_alpn_protocols([alpn])
            async with asyncio.timeout(10):
                transport, _ = await loop.create_connection(
                    asyncio.Protocol, sock=sock, ssl=context, server_hostname="localhost"
                )
            transport.pause_reading()
            self.stack.callback(transport.abort)
            transport.write(data)
            return
        sock.close()

    async def quic(self, **options: Any) -> DoqClient | None:
        configuration = QuicConfiguration(
            alpn_protocols=["doq"], cafile=str(self.ca), server_name="localhost", **options
        )
        try:
            async with asyncio.timeout(20):
                client = await self.stack.enter_async_context(
                    connect("127.0.0.1", self.ports["quic"], configuration=configuration, create_protocol=LeavingClient)
                )
        except (OSError, TimeoutError):
            return None
        assert isinstance(client, DoqClient)
        return client


async def _all_sent(loop: asyncio.AbstractEventLoop, sock: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        await loop.sock_sendall(sock, data)


Attack = Callable[[Target], Coroutine[Any, Any, None]]
WIDE: Final = setting(4, 0) + window(0, (1 << 31) - 1 - 65535)
"""Closed windows of streams."""


def request(stream: int, path: str = "/dns-query", body: bytes | None = None, *, is_whole: bool = True) -> bytes:
    """A POST request with a body, or a GET request."""
    fields = [("POST" if body is not None else "GET"), "https", "x", path]
    pairs = [hpack.NeverIndexedHeaderTuple(name, value) for (name, _), value in zip(POST, fields, strict=True)]
    pairs.append(hpack.NeverIndexedHeaderTuple(*TYPE))
    block = hpack.Encoder().encode(pairs, huffman=False)
    end = END_STREAM if body is None and is_whole else 0
    sent = frame(HEADERS, END_HEADERS | end, stream, block)
    body = body or b""
    for start in range(0, len(body), 16384):
        is_last = is_whole and start + 16384 >= len(body)
        sent += frame(DATA, END_STREAM if is_last else 0, stream, body[start : start + 16384])
    return sent


def requests(count: int, path: Callable[[int], str] = lambda _: "/dns-query", **more: Any) -> bytes:
    return b"".join(request(2 * number + 1, path(number), **more) for number in range(count))


def pending(size_bytes: int = 60_000) -> bytes:
    """100 framed queries that wait for an upstream."""
    return b"".join(framed(padded(f"n{number}.{LATE}", size_bytes, number)) for number in range(100))


def post(query: bytes, length: int = 0) -> bytes:
    head = (
        f"POST /dns-query HTTP/1.1\r\nhost: x\r\n{TYPE[0]}: {TYPE[1]}\r\ncontent-length: {length or len(query)}\r\n\r\n"
    )
    return head.encode() + query


def long_paths(dns: str) -> bytes:
    """The query is small, its path is long."""
    return requests(100, lambda _: f"/dns-query?dns={dns}&x={'x' * 15_000}")


def field_blocks() -> bytes:
    """Field blocks without end, and a full dynamic table."""
    table = hpack.Encoder().encode([(f"a{number}", "") for number in range(115)], huffman=False)
    whole = frame(HEADERS, END_HEADERS | END_STREAM, 1, hpack.Encoder().encode(POST) + table)
    return GREETING + whole + frame(HEADERS, 0, 3, bytes(200)) + frame(CONTINUATION, 0, 3, bytes(250)) * 62


def resets() -> bytes:
    """Requests that are reset while they are pending."""
    data = GREETING
    for first in range(1, 8000, 100):
        streams = range(first, first + 100, 2)
        data += b"".join(request(stream, body=packet(f"n{stream}.{LATE}")) for stream in streams)
        data += b"".join(frame(RST_STREAM, 0, stream, bytes(4)) for stream in streams)
    return data


INCOMPLETE: Final = b"\xff\xff" + bytes(65_000)
SENT: Final[Mapping[str, tuple[str, str, Callable[[], bytes]]]] = {
    "tcp_pending": ("dns", "", pending),
    "tcp_pending_small": ("dns", "", partial(pending, 60)),
    "tcp_incomplete": ("dns", "", lambda: INCOMPLETE),
    "tcp_unread": ("dns", "", lambda: framed(packet(MANY)) * 100),
    "tls_pending": ("tls", "dot", pending),
    "tls_incomplete": ("tls", "dot", lambda: INCOMPLETE),
    "tls_unread": ("tls", "dot", lambda: framed(packet(MANY)) * 100),
    "h2_pending_paths": ("https", "h2", lambda: GREETING + long_paths("AAABAAABAAAAAAAAAWEEbGF0ZQR0ZXN0AAABAAE")),
    "h2_blocked_paths": ("https", "h2", lambda: GREETING + WIDE + long_paths("AAABAAABAAAAAAAAA29uZQR0ZXN0AAABAAE")),
    "h2_blocked_answers": ("https", "h2", lambda: GREETING + WIDE + requests(100, body=packet(MANY))),
    "h2_incomplete": (
        *("https", "h2"),
        lambda: GREETING + requests(100, lambda _: f"/{'x' * 15_000}", body=b"x", is_whole=False),
    ),
    "h2_field_blocks": ("https", "h2", field_blocks),
    "h2_resets": ("https", "h2", resets),
    "h1_pipelined": ("https", "http/1.1", lambda: post(padded(f"a.{LATE}", 60_000)) * 20),
    "h1_incomplete": ("https", "http/1.1", lambda: post(bytes(64_000), 65_000)),
    "h1_unread": ("https", "http/1.1", lambda: post(packet(MANY)) * 100),
}
"""Attack → scheme, ALPN, and what each connection sends at once."""


async def send(target: Target, scheme: str, alpn: str, data: Callable[[], bytes]) -> None:
    for number in CLIENTS:
        await target.sent(scheme, data(), number, alpn)


async def h2_bodies(target: Target, number: int, body: Callable[[int], bytes]) -> None:
    """100 POST requests on one connection as fast as the server's windows allow; its responses are blocked."""
    context = ssl.create_default_context(cafile=str(target.ca))
    context.set_alpn_protocols(["h2"])
    client = h2.connection.H2Connection()
    client.initiate_connection()
    client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
    with suppress(OSError, TimeoutError, h2.exceptions.ProtocolError):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", target.ports["https"], ssl=context, server_hostname="localhost",
            local_addr=(f"127.0.0.{number + 1}", 0),
        )  # fmt: skip
        target.stack.callback(writer.transport.abort)
        target.stack.callback(lambda: writer)  # which would warn if it was not kept
        for request_number in range(100):
            stream = client.get_next_available_stream_id()
            client.send_headers(stream, [*POST, TYPE])
            rest = body(request_number)
            while rest:
                room = min(client.local_flow_control_window(stream), client.max_outbound_frame_size)
                if room:
                    client.send_data(stream, rest[:room], end_stream=room >= len(rest))
                    rest = rest[room:]
                writer.write(client.data_to_send())
                if not room:
                    await writer.drain()
                    received = await reader.read(65536)
                    if not received:
                        return
                    client.receive_data(received)


async def h2_clients(target: Target, body: Callable[[int], bytes]) -> None:
    for number in CLIENTS:
        target.stack.callback(asyncio.create_task(h2_bodies(target, number, body)).cancel)
        await asyncio.sleep(0.01)


async def quic(target: Target, query: Callable[[int], bytes], **options: Any) -> None:
    for _ in CLIENTS:
        if client := await target.quic(**options):
            if options:
                client.read_no_more()
            for stream in range(0, 400, 4):
                client.ask(stream, query(stream))


async def quic_incomplete(target: Target) -> None:
    for _ in CLIENTS:
        if client := await target.quic():
            for stream in range(0, 400, 4):
                client._quic.send_stream_data(stream, INCOMPLETE)  # noqa: SLF001 - no end
            client.transmit()


async def udp_pending(target: Target) -> None:
    for client in CLIENTS:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        target.stack.callback(sock.close)
        sock.bind((f"127.0.0.{client + 1}", 0))
        for number in range(8):
            sock.sendto(padded(f"n{number}.{LATE}", 4000, number), ("127.0.0.1", target.ports["dns"]))


ATTACKS: Final[Mapping[str, Attack]] = {
    **{name: partial(send, scheme=scheme, alpn=alpn, data=data) for name, (scheme, alpn, data) in SENT.items()},
    "h2_pending": partial(h2_clients, body=lambda number: padded(f"n{number}.{LATE}", 60_000)),
    "h2_blocked_bodies": partial(h2_clients, body=lambda _: padded("one.test", 64_000)),
    "quic_pending": partial(quic, query=lambda stream: padded(f"n{stream}.{LATE}", 60_000)),
    "quic_pending_small": partial(quic, query=lambda stream: packet(f"n{stream}.{LATE}", number=0)),
    "quic_unread": partial(quic, query=lambda _: packet(MANY, number=0), max_data=1000, max_stream_data=100),
    "quic_incomplete": quic_incomplete,
    "udp_pending": udp_pending,
}


@dataclass
class Silent:
    """A server over UDP and TCP that reads and answers nothing."""

    port: int = 0

    async def start(self, stack: AsyncExitStack) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", self.port))
        stack.callback(sock.close)
        stack.callback(server.close)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            while await reader.read(65536):
                pass
        writer.close()
