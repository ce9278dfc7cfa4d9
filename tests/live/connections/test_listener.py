"""Listeners: what they do without descriptors, and with clients that never finish a TLS handshake."""

import asyncio
import errno
import os
import socket
from functools import partial
from pathlib import Path

import pytest
from fake_api_certs import contexts
from structlog.testing import capture_logs

from kdns.runtime import connections
from kdns.runtime.connections import ConnectionKind, Connections, Listener

DEADLINE_S = 60.0


class Greeter(asyncio.Protocol):
    """Says hello to whoever comes."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = getattr(transport, "_ssl_protocol", None)
        assert protocol is None or len(protocol.get_buffer(-1)) == connections.TLS_BUFFER_BYTES
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello\n")
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.connections.remove(self)


class OutOfDescriptors(socket.socket):
    """A listening socket whose first accepts fail."""

    failures = 3

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


def bound(kind: type[socket.socket] = socket.socket) -> socket.socket:
    sock = kind()
    sock.bind(("127.0.0.1", 0))
    return sock


async def test_without_descriptors_it_pauses_says_so_once_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PAUSE_S", 0.01)
    with capture_logs() as logs:
        listener = Listener(bound(OutOfDescriptors), partial(Greeter, Connections(ConnectionKind.SITES)))
        reader, writer = await asyncio.open_connection(*listener.address)
        async with asyncio.timeout(DEADLINE_S):
            assert await reader.readline() == b"hello\n"
    writer.close()
    listener.close()
    assert [log["event"] for log in logs] == ["no descriptors left: nothing is accepted for a moment"]


async def test_handshakes_that_do_not_end_make_room_for_others(tmp_path: Path) -> None:
    tls, trust = contexts(tmp_path)
    handshakes = Connections(ConnectionKind.UNAUTHENTICATED, 2)
    listener = Listener(bound(), partial(Greeter, handshakes), tls, handshakes)
    idle = [await asyncio.open_connection(*listener.address) for _ in range(20)]
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(*listener.address, ssl=trust)
        assert await reader.readline() == b"hello\n"
        assert [await each.read() for each, _ in idle[:18]] == [b""] * 18
        writer.close()
        listener.close()
        assert [await each.read() for each, _ in idle[18:]] == [b""] * 2
        for _, each in idle:
            each.close()
        while len(handshakes):  # noqa: ASYNC110 - the ends of the connections are what is waited for
            await asyncio.sleep(0.01)


async def test_a_handshake_that_does_not_end_in_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HANDSHAKE_S", 0.05)
    handshakes = Connections(ConnectionKind.UNAUTHENTICATED, 2)
    listener = Listener(bound(), partial(Greeter, handshakes), contexts(tmp_path)[0], handshakes)
    for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02"):
        reader, writer = await asyncio.open_connection(*listener.address)
        writer.write(sent)
        async with asyncio.timeout(DEADLINE_S):
            await reader.read()
        writer.close()
    listener.close()
    async with asyncio.timeout(DEADLINE_S):
        while len(handshakes):  # noqa: ASYNC110 - the tasks' ends are what is waited for
            await asyncio.sleep(0.01)
