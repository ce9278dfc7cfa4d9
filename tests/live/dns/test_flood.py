"""A client that floods the server does not keep another one from its answers."""

import asyncio
import socket
import time
from collections.abc import Awaitable

import pytest
from dns_chain import server_of
from dns_client import packet
from fake_api import until

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve
from kdns.answers.response import Response, Reuse
from kdns.dns.query import AA
from kdns.dns.types import NOERROR, NXDOMAIN, SERVFAIL
from kdns.dnsserver.io import stream
from kdns.dnsserver.io.request_metrics import Requests
from kdns.dnsserver.io.stream import Clients
from kdns.dnsserver.io.udp import UdpListener
from kdns.runtime import tasks
from kdns.runtime.client_memory import ClientMemory

FLOOD = 200
"""Queries; as many as the smallest default buffer of a socket holds, and fewer than one burst."""


class Slow(Plugin):
    """Takes longer than a slice for each name, and remembers who asked."""

    sees = Sees.PACKET

    def __init__(self) -> None:
        self.clients: list[str] = []

    def serve(self, request: Request, next: Serve) -> Reply:  # noqa: A002 - as in Plugin
        del next
        self.clients.append(request.client[0])
        time.sleep(tasks.SLICE_S)
        return Response(NXDOMAIN, AA, reuse=Reuse())


def client_at(address: str, port: int) -> socket.socket:
    sock = socket.socket(type=socket.SOCK_DGRAM)
    sock.bind((address, 0))
    sock.connect(("127.0.0.1", port))
    sock.setblocking(False)
    return sock


def listening(
    plugin: Plugin, memory: ClientMemory | None = None, requests: Requests | None = None
) -> tuple[UdpListener, int]:
    """A listener on a port of the kernel's choice, and the port."""
    sock = socket.socket(type=socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    return UdpListener(sock, server_of(plugin), requests or Requests(), Clients(memory)), sock.getsockname()[1]


@pytest.mark.parametrize(("room", "shed"), [(stream.MAX_WAITING, 0), (40, FLOOD - 20)])
async def test_who_asks_little_is_answered_first(room: int, shed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_WAITING", room)
    slow, requests, loop = Slow(), Requests(), asyncio.get_running_loop()
    listener, port = listening(slow, requests=requests)
    with client_at("127.0.0.3", port) as flooder, client_at("127.0.0.2", port) as other:
        for number in range(FLOOD):
            flooder.send(packet(f"{number}.test", number=number))
        for number in (1, 2):
            other.send(packet("known.test", number=number))
        async with asyncio.timeout(60):
            first, second = await loop.sock_recv(other, 4096), await loop.sock_recv(other, 4096)
        assert (first[:2], second[:2], first[2:]) == (b"\0\1", b"\0\2", second[2:])
        assert slow.clients.count("127.0.0.2") == 1, "the second one is in the table when its turn comes"
        assert slow.clients.index("127.0.0.2") == 1, "behind one query of the flood"
        await until(lambda: len(slow.clients) == FLOOD - shed + 1)
        assert requests.shed == shed
        assert sum(requests.durations.counts) == FLOOD - shed + 2
    await listener.close()


async def test_what_waits_is_answered_before_the_socket_closes() -> None:
    slow = Slow()
    listener, port = listening(slow)
    with client_at("127.0.0.3", port) as client:
        for number in range(20):
            client.send(packet(f"{number}.test", number=number))
        while not slow.clients:  # noqa: ASYNC110 - a slice is an iteration of the loop
            await asyncio.sleep(0)
        assert len(slow.clients) < 20
        await listener.close()
        assert {client.recv(4096)[1] for _ in range(20)} == set(range(20))


class Silent(Plugin):
    """Answers `known.test`; whoever asks for another name waits for the end."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()

    def serve(self, request: Request, next: Serve) -> Awaitable[Response]:  # noqa: A002 - as in Plugin
        del next
        return self.later(request)

    async def later(self, request: Request) -> Response:
        if request.query.name != "known.test.":
            await self.is_over.wait()
        return Response()


async def test_who_asks_for_names_that_do_not_come_leaves_room() -> None:
    silent, loop = Silent(), asyncio.get_running_loop()
    listener, port = listening(silent, ClientMemory(max_pending=20))
    with client_at("127.0.0.3", port) as flooder, client_at("127.0.0.2", port) as other:
        for number in range(40):
            flooder.send(packet(f"{number}.test", number=number))
        async with asyncio.timeout(60):
            refused = [await loop.sock_recv(flooder, 4096) for _ in range(30)]
            assert {wire[3] & 15 for wire in refused} == {SERVFAIL}
            for number in range(40):
                other.send(packet("known.test", number=number))
                answer = await loop.sock_recv(other, 4096)
                assert (answer[1], answer[3] & 15) == (number, NOERROR)
    silent.is_over.set()
    await listener.close()
