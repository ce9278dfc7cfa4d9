"""A closed connection is freed at once: a process collects garbage rarely, so attackers would fill its memory."""

import asyncio
import gc
import socket
import ssl
import struct
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from aioquic.quic.connection import QuicConnection
from dns_client import framed, packet
from encrypted_server import Encrypted, doq_client, encrypted
from fake_api import until
from fake_upstream import Silent, fake_server

from kdns.dnsserver.io.encrypted import quic
from kdns.dnsserver.io.stream import StreamConnection
from kdns.runtime.client_memory import ClientMemory

QUERY = packet("a.test", number=0)
HTTP1 = b"GET /dns-query?dns=AAABAAABAAAAAAAAAWEEdGVzdAAAAQAB HTTP/1.1\r\nhost: x\r\n\r\n"
SENT = {
    "dot": framed(QUERY),
    "h2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5),
    "http/1.1": HTTP1,
}
GARBAGE = {"dot": b"\0\1x", "h2": b"\xff" * 40, "http/1.1": b"x y\r\n\r\n\r\n"}

Seen = list[weakref.ref[object]]


@contextmanager
def uncollected(*kinds: type[object]) -> Iterator[Seen]:
    """References to the objects of these classes that begin while nothing collects garbage."""
    seen: Seen = []
    gc.collect()
    gc.disable()
    with pytest.MonkeyPatch.context() as patched:
        for kind in kinds:
            begin = kind.__init__

            def noted(self: object, *args: object, begin: object = begin, **options: object) -> None:
                seen.append(weakref.ref(self))
                begin(self, *args, **options)  # type: ignore[operator] # it is the method

            patched.setattr(kind, "__init__", noted)
        try:
            yield seen
        finally:
            gc.enable()


def are_freed(seen: Seen) -> bool:
    return bool(seen) and not any(reference() for reference in seen)


@asynccontextmanager
async def serving(folder: Path, options: str = "") -> AsyncIterator[tuple[Encrypted, ClientMemory]]:
    """A server of names of which those below late.test wait for an upstream without answers."""
    async with fake_server(udp=Silent(), tcp=Silent()) as upstream:
        directives = f"forward late.test 127.0.0.1:{upstream.port}\nwhoami"
        async with encrypted(folder, options, directives) as made:
            yield made, made.server._listeners.clients.memory  # noqa: SLF001 - what evicts connections


def evict(memory: ClientMemory) -> None:
    for client in tuple(memory._clients.values()):  # noqa: SLF001 - see above
        for account in tuple(client.accounts):
            account.holder.evict()


class OnServer(QuicConnection):
    pass


@pytest.mark.parametrize("end", ["client", "server", "eviction", "pending", "idle"])
async def test_over_quic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(quic, "QuicConnection", OnServer)
    options = "timeouts {\nidle 1s\n}" if end == "idle" else ""
    async with serving(tmp_path, options) as (made, memory), asyncio.timeout(60):
        with uncollected(quic.QuicClient, OnServer) as seen:
            async with doq_client(made) as client:
                client.ask(0, QUERY)
                await until(lambda: 0 in client.ended)
                if end == "server":
                    client.ask(4, b"\0\0nonsense")
                elif end == "eviction":
                    evict(memory)
                elif end == "pending":
                    client.ask(4, packet("a.late.test", number=0))
                    await until(lambda: memory.held_bytes > 0)
                if end not in {"client", "pending"}:
                    await client.wait_closed()
            await until(lambda: are_freed(seen))
            assert len(seen) == 2


async def test_refused_over_quic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A datagram that begins a connection beyond the maximum costs no state of QUIC."""
    monkeypatch.setattr(quic, "QuicConnection", OnServer)
    async with serving(tmp_path) as (made, _), asyncio.timeout(60):
        made.server._listeners.clients.quic_connections.maximum = 0  # noqa: SLF001 - as if all were busy
        with uncollected(quic.QuicClient, OnServer) as seen:
            connecting = asyncio.create_task(doq_client(made).__aenter__())
            await until(lambda: len(seen) > 0)
            connecting.cancel()
            with suppress(asyncio.CancelledError):
                await connecting
            await until(lambda: are_freed(seen))


@pytest.mark.parametrize("end", ["client", "reset", "server", "eviction", "garbage"])
@pytest.mark.parametrize(("scheme", "alpn"), [("tls", "dot"), ("https", "h2"), ("https", "http/1.1")])
async def test_over_tls(tmp_path: Path, scheme: str, alpn: str, end: str) -> None:
    options = "timeouts {\nidle 1s\n}" if end == "server" else ""
    async with serving(tmp_path, options) as (made, memory), asyncio.timeout(60):
        context = ssl.create_default_context(cafile=str(made.ca))
        context.set_alpn_protocols([alpn])

        def connected() -> ssl.SSLSocket:
            sock = socket.create_connection(("127.0.0.1", made.port(scheme)), 30)
            client = context.wrap_socket(sock, server_hostname="localhost")
            client.sendall(SENT[alpn])
            assert client.recv(1)
            return client

        with uncollected(StreamConnection, asyncio.sslproto.SSLProtocol) as seen:
            client = await asyncio.to_thread(connected)
            if end == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif end == "garbage":
                client.sendall(GARBAGE[alpn])
            elif end == "eviction":
                evict(memory)
            if end not in {"client", "reset"}:
                await asyncio.to_thread(read_all, client)
            client.close()
            await until(lambda: are_freed(seen))
            assert len(seen) == 2


def read_all(client: ssl.SSLSocket) -> None:
    with suppress(OSError):
        while client.recv(65536):
            pass
