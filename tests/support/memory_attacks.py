"""Clients that make a server hold as much as it lets them: each opens connections, sends, and reads nothing more.

Run as a program, it starts `kdns serve` on loopback, runs each attack beside a client that asks over UDP, and prints
the server's memory: python tests/support/memory_attacks.py [ATTACK ...]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
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
from fake_api_certs import authority, issue
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
    """The ports of a server by scheme, and the certificate to trust; `scale` is the part of connections to open."""

    ports: Mapping[str, int]
    ca: Path
    scale: float = 1.0
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def count(self, connections: int) -> int:
        return max(2, int(connections * self.scale))

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
ATTACKS: dict[str, Attack] = {}


def attack(run: Attack) -> Attack:
    ATTACKS[run.__name__] = run
    return run


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


WIDE = setting(4, 0) + window(0, (1 << 31) - 1 - 65535)
"""Closed windows of streams."""


@attack
async def tcp_pending(target: Target) -> None:
    data = b"".join(framed(padded(f"n{number}.{LATE}", 60_000, number)) for number in range(100))
    for _ in range(target.count(45)):
        await target.sent("dns", data)


@attack
async def tcp_pending_of_four(target: Target) -> None:
    data = b"".join(framed(padded(f"n{number}.{LATE}", 60_000, number)) for number in range(100))
    for number in range(target.count(60)):
        await target.sent("dns", data, number % 4)


@attack
async def tcp_pending_small(target: Target) -> None:
    for number in range(target.count(60)):
        data = b"".join(framed(packet(f"n{query}.m{number}.{LATE}", number=query)) for query in range(100))
        await target.sent("dns", data, number % 4)


@attack
async def tcp_incomplete(target: Target) -> None:
    for number in range(target.count(1000)):
        await target.sent("dns", b"\xff\xff" + bytes(65_000), number % 8)


@attack
async def tcp_unread(target: Target) -> None:
    for number in range(target.count(1000)):
        await target.sent("dns", framed(packet(MANY)) * 100, number % 8)


@attack
async def tcp_idle(target: Target) -> None:
    for number in range(target.count(1000)):
        await target.sent("dns", b"", number % 8)


@attack
async def tls_pending(target: Target) -> None:
    data = b"".join(framed(padded(f"n{number}.{LATE}", 60_000, number)) for number in range(100))
    for number in range(target.count(60)):
        await target.sent("tls", data, number % 4, "dot")


@attack
async def tls_incomplete(target: Target) -> None:
    for number in range(target.count(300)):
        await target.sent("tls", b"\xff\xff" + bytes(65_000), number % 8, "dot")


@attack
async def tls_unread(target: Target) -> None:
    for number in range(target.count(300)):
        await target.sent("tls", framed(packet(MANY)) * 100, number % 8, "dot")


@attack
async def tls_idle(target: Target) -> None:
    for number in range(target.count(1000)):
        await target.sent("tls", b"", number % 8, "dot")


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
            local_addr=(f"127.0.0.{number % 4 + 1}", 0),
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


async def h2_clients(target: Target, count: int, body: Callable[[int], bytes]) -> None:
    for number in range(target.count(count)):
        target.stack.callback(asyncio.create_task(h2_bodies(target, number, body)).cancel)
        await asyncio.sleep(0.01)


@attack
async def h2_pending(target: Target) -> None:
    await h2_clients(target, 20, lambda number: padded(f"n{number}.{LATE}", 60_000))


@attack
async def h2_pending_paths(target: Target) -> None:
    """The query is small, its path is long."""
    dns = "AAABAAABAAAAAAAAAWEEbGF0ZQR0ZXN0AAABAAE"
    data = GREETING + b"".join(
        request(2 * number + 1, f"/dns-query?dns={dns}&x={'x' * 15_000}") for number in range(100)
    )
    for number in range(target.count(100)):
        await target.sent("https", data, number % 4, "h2")


@attack
async def h2_blocked_bodies(target: Target) -> None:
    """Answered requests of 64 KiB whose responses the client's windows block."""
    await h2_clients(target, 100, lambda _: padded("one.test", 64_000))


@attack
async def h2_blocked_paths(target: Target) -> None:
    dns = "AAABAAABAAAAAAAAA29uZQR0ZXN0AAABAAE"
    data = (
        GREETING
        + WIDE
        + b"".join(request(2 * number + 1, f"/dns-query?dns={dns}&x={'x' * 15_000}") for number in range(100))
    )
    for number in range(target.count(100)):
        await target.sent("https", data, number % 4, "h2")


@attack
async def h2_blocked_answers(target: Target) -> None:
    """Small requests, responses of 64 KiB."""
    data = GREETING + WIDE + b"".join(request(2 * number + 1, body=packet(MANY)) for number in range(100))
    for number in range(target.count(100)):
        await target.sent("https", data, number % 4, "h2")


@attack
async def h2_incomplete(target: Target) -> None:
    data = GREETING + b"".join(
        request(2 * number + 1, f"/{'x' * 15_000}", body=b"x", is_whole=False) for number in range(100)
    )
    for number in range(target.count(300)):
        await target.sent("https", data, number % 4, "h2")


@attack
async def h2_field_blocks(target: Target) -> None:
    """Field blocks without end, and a full dynamic table."""
    table = hpack.Encoder().encode([(f"a{number}", "") for number in range(115)], huffman=False)
    data = GREETING + frame(HEADERS, END_HEADERS | END_STREAM, 1, hpack.Encoder().encode(POST) + table)
    data += frame(HEADERS, 0, 3, bytes(200)) + frame(CONTINUATION, 0, 3, bytes(250)) * 62
    for number in range(target.count(300)):
        await target.sent("https", data, number % 4, "h2")


@attack
async def h2_resets(target: Target) -> None:
    """Requests that are reset while they are pending."""
    data = GREETING
    for first in range(1, 8000, 100):
        streams = range(first, first + 100, 2)
        data += b"".join(request(stream, body=packet(f"n{stream}.{LATE}")) for stream in streams)
        data += b"".join(frame(RST_STREAM, 0, stream, bytes(4)) for stream in streams)
    for number in range(target.count(20)):
        await target.sent("https", data, number % 4, "h2")


@attack
async def h2_idle(target: Target) -> None:
    for number in range(target.count(1000)):
        await target.sent("https", GREETING, number % 8, "h2")


@attack
async def h1_pipelined(target: Target) -> None:
    query = padded(f"a.{LATE}", 60_000)
    head = f"POST /dns-query HTTP/1.1\r\nhost: x\r\n{TYPE[0]}: {TYPE[1]}\r\ncontent-length: {len(query)}\r\n\r\n"
    for number in range(target.count(300)):
        await target.sent("https", (head.encode() + query) * 20, number % 4, "http/1.1")


@attack
async def h1_incomplete(target: Target) -> None:
    head = f"POST /dns-query HTTP/1.1\r\nhost: x\r\n{TYPE[0]}: {TYPE[1]}\r\ncontent-length: 65000\r\n\r\n"
    for number in range(target.count(300)):
        await target.sent("https", head.encode() + bytes(64_000), number % 4, "http/1.1")


@attack
async def h1_unread(target: Target) -> None:
    query = packet(MANY)
    head = f"POST /dns-query HTTP/1.1\r\nhost: x\r\n{TYPE[0]}: {TYPE[1]}\r\ncontent-length: {len(query)}\r\n\r\n"
    for number in range(target.count(300)):
        await target.sent("https", (head.encode() + query) * 100, number % 4, "http/1.1")


@attack
async def quic_pending(target: Target) -> None:
    for _ in range(target.count(60)):
        if client := await target.quic():
            for stream in range(0, 400, 4):
                client.ask(stream, padded(f"n{stream}.{LATE}", 60_000))


@attack
async def quic_pending_small(target: Target) -> None:
    for number in range(target.count(60)):
        if client := await target.quic():
            for stream in range(0, 400, 4):
                client.ask(stream, packet(f"n{stream}.m{number}.{LATE}", number=0))


@attack
async def quic_unread(target: Target) -> None:
    for _ in range(target.count(60)):
        if client := await target.quic(max_data=1000, max_stream_data=100):
            client.read_no_more()
            for stream in range(0, 400, 4):
                client.ask(stream, packet(MANY, number=0))


@attack
async def quic_incomplete(target: Target) -> None:
    for _ in range(target.count(60)):
        if client := await target.quic():
            for stream in range(0, 400, 4):
                client._quic.send_stream_data(stream, b"\xff\xff" + bytes(60_000))  # noqa: SLF001 - no end
            client.transmit()


@attack
async def quic_idle(target: Target) -> None:
    for _ in range(target.count(1000)):
        await target.quic()


@attack
async def udp_pending(target: Target) -> None:
    for client in range(8):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        target.stack.callback(sock.close)
        sock.bind((f"127.0.0.{client + 1}", 0))
        for number in range(target.count(1000)):
            sock.sendto(padded(f"n{number}.{LATE}", 4000, number), ("127.0.0.1", target.ports["dns"]))
            if number % 20 == 0:
                await asyncio.sleep(0.01)


COREFILE: Final = """\
{plain}://.:0 {{
    bind 127.0.0.1
    hosts {hosts} test {{
        fallthrough
    }}
    template IN A one.test {{
        answer "{{{{ .Name }}}} 60 IN A 10.0.0.1"
        fallthrough
    }}
    forward . 127.0.0.1:{silent} {forward}
}}
tls://.:0 https://.:0 quic://.:0 {{
    bind 127.0.0.1
    tls {cert} {key}
    hosts {hosts} test {{
        fallthrough
    }}
    template IN A one.test {{
        answer "{{{{ .Name }}}} 60 IN A 10.0.0.1"
        fallthrough
    }}
    forward . 127.0.0.1:{silent} {forward}
}}
"""


def memory_mib(process: int, key: str = "VmRSS") -> float:
    found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text(encoding="ascii"))
    return int(found[1]) / 1024 if found else 0.0


@dataclass
class Silent:
    """A server over UDP and TCP that reads and answers nothing."""

    port: int = 0
    opened: int = 0

    async def start(self, stack: AsyncExitStack) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", self.port))
        stack.callback(sock.close)
        stack.callback(server.close)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        with suppress(OSError, asyncio.CancelledError):
            while await reader.read(65536):
                pass
        writer.close()


def ask(port: int, seconds: float) -> None:
    """Asks over UDP from another address, and prints how long the answers took."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.1.1", 0))
    sock.connect(("127.0.0.1", port))
    sock.settimeout(2)
    end_s, times_ms, lost, number = time.monotonic() + seconds, [], 0, 0
    while time.monotonic() < end_s:
        number += 1
        started_s = time.perf_counter()
        sock.send(packet(f"n{number % 50}.one.test", number=number))
        try:
            while sock.recv(4096)[:2] != number.to_bytes(2, "big"):
                pass
            times_ms.append((time.perf_counter() - started_s) * 1000)
        except TimeoutError:
            lost += 1
        time.sleep(0.01)
    times_ms.sort()
    print(f"p50 {times_ms[len(times_ms) // 2]:.1f} p99 {times_ms[int(len(times_ms) * 0.99)]:.1f} ms, lost {lost}")


async def measured(name: str, forward: str, hold_s: float) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ca = authority("ca")
        (folder / "ca.crt").write_bytes(ca.pem)
        cert, key = issue(ca, "server", folder, ("localhost", "127.0.0.1"))
        hosts = folder / "hosts"
        hosts.write_text("".join(f"10.1.{n >> 8}.{n & 255} {MANY}\n" for n in range(4000)), encoding="ascii")
        silent = Silent()
        await silent.start(stack)
        text = COREFILE.format(
            plain="dns", hosts=hosts, cert=cert, key=key, silent=silent.port, forward=f"{{\n{forward}\n}}"
        )
        (folder / "Corefile").write_text(text, encoding="ascii")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kdns", "serve", "--conf", str(folder / "Corefile"),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout
        ports: dict[str, int] = {}
        async with asyncio.timeout(60):
            while len(ports) < 4:
                line = (await process.stdout.readline()).decode()
                if found := re.match(r"(dns|tls|https|quic)\S* .*?:(\d+)\b", line):
                    ports[found[1]] = int(found[2])
        await asyncio.sleep(1)
        before = memory_mib(process.pid)
        asking = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--ask", str(ports["dns"]), "--seconds", str(hold_s + 2),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        log = asyncio.create_task(process.stdout.read())
        target = Target(ports, folder / "ca.crt")
        started_s = time.monotonic()
        async with target.stack:
            await ATTACKS[name](target)
            sent_s = time.monotonic() - started_s
            await asyncio.sleep(hold_s)
            after = memory_mib(process.pid)
            answered, _ = await asking.communicate()
        peak = memory_mib(process.pid, "VmHWM")
        print(
            f"{name:20} {before:4.0f} -> {after:4.0f} MiB, peak {peak:4.0f}; sent in {sent_s:4.1f} s; UDP "
            f"{answered.decode().strip()}; upstream connections {silent.opened}",
            flush=True,
        )
        process.terminate()
        await process.wait()
        log.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attacks", nargs="*")
    parser.add_argument("--forward", default="", help="options of forward, such as force_tcp")
    parser.add_argument("--seconds", type=float, default=3.0, help="that the connections stay open")
    parser.add_argument("--ask", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        ask(options.ask, options.seconds)
        return
    for name in options.attacks or ATTACKS:
        asyncio.run(measured(name, options.forward, options.seconds))


if __name__ == "__main__":
    os.nice(1)
    main()
