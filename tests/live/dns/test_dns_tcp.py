"""DNS over TCP with clients that do not read, do not leave, or close one half; a plugin stands for the cluster."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from dns_chain import server_of
from dns_client import Tcp, answers, framed, packet, read
from fake_api import until

from kdns.answers.chain import Plugin, Request, Serve, ServeResult
from kdns.answers.response import Response
from kdns.dns.rrset import RRset
from kdns.dns.types import A
from kdns.dnsserver.io import fair_scheduler, tcp
from kdns.dnsserver.io.request_metrics import Requests
from kdns.dnsserver.io.stream import Clients
from kdns.dnsserver.io.tcp import TcpListener
from kdns.runtime.client_memory import MAX_HELD_BYTES, ClientMemory
from kdns.runtime.connections import ConnectionKind, Connections

MANY = 4000
"""Addresses of an answer of 64 kB, the most that one message holds."""


class Addresses(Plugin):
    """Answers with many addresses; names of one label below `late.` wait for `may_answer`."""

    def __init__(self) -> None:
        self.asked = 0
        self.clients: list[str] = []
        self.may_answer = asyncio.Event()

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        del next
        self.asked += 1
        self.clients.append(request.client[0])
        count = MANY if request.query.name.startswith("many.") else 1
        addresses = tuple((0x0A000001 + number).to_bytes(4, "big") for number in range(count))
        response = Response(answer=(RRset(request.query.name, A, 5, addresses),))
        return self._later(response) if request.query.name.endswith("late.") else response

    async def _later(self, response: Response) -> Response:
        await self.may_answer.wait()
        return response


@dataclass
class Rig:
    """A listener on a port of the kernel's choice, and what is behind it."""

    plugin: Addresses
    clients: Clients
    requests: Requests
    listener: TcpListener
    port: int

    async def connected(self, host: str) -> socket.socket:
        """A connection from an address of loopback."""
        sock = socket.socket()
        sock.bind((host, 0))
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        return sock

    async def unread(self, questions: int) -> socket.socket:
        """A connection that asks for large answers and reads none."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", self.port))
        await loop.sock_sendall(sock, framed(packet("many.example")) * questions)
        return sock


@asynccontextmanager
async def listening(limit: int = 1000, max_bytes: int = MAX_HELD_BYTES) -> AsyncIterator[Rig]:
    plugin, clients, requests = Addresses(), Clients(ClientMemory(max_bytes)), Requests()
    clients.connections = Connections(ConnectionKind.DNS, limit)
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    listener = TcpListener(sock, server_of(plugin), requests, clients)
    try:
        yield Rig(plugin, clients, requests, listener, sock.getsockname()[1])
    finally:
        await listener.close()


async def test_who_does_not_read_is_asked_for_no_more_questions() -> None:
    async with listening() as rig:
        unread = await rig.unread(questions=200)
        await until(lambda: rig.clients.memory.held_bytes > 0)
        asked = rig.plugin.asked
        async with await Tcp.connect(rig.port) as other:
            for _ in range(20):
                assert answers(await other.ask(packet("one.example"))) == ["10.0.0.1"]
        assert rig.plugin.asked == asked + 20
        assert asked < 20
        assert rig.clients.memory.held_bytes <= (1 << 16) + tcp.READ_BYTES
        unread.close()
        await until(lambda: rig.clients.memory.held_bytes == 0)


async def test_who_reads_late_gets_every_answer_in_order() -> None:
    async with listening() as rig, await Tcp.connect(rig.port) as stream:
        questions = b"".join(framed(packet("many.example", number=number)) for number in range(100))
        asking = asyncio.create_task(stream.send(questions))
        await until(lambda: rig.clients.memory.held_bytes > 0)
        assert [(await stream.receive())[:2] for _ in range(100)] == [n.to_bytes(2, "big") for n in range(100)]
        await asking


async def test_all_connections_together_hold_no_more_than_the_budget() -> None:
    async with listening(max_bytes=1 << 18) as rig:
        unread = [await rig.unread(questions=20) for _ in range(30)]
        await until(lambda: rig.requests.evicted > 0)
        assert 0 < rig.clients.memory.held_bytes <= 1 << 18
        async with await Tcp.connect(rig.port) as other:
            assert answers(await other.ask(packet("one.example"))) == ["10.0.0.1"]
        for sock in unread:
            sock.close()
        await until(lambda: not len(rig.clients.connections))
        assert rig.clients.memory.held_bytes == 0


async def test_clients_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_scheduler, "SLICE_S", 0.0)
    async with listening() as rig:
        busy = [await rig.connected("127.0.0.1") for _ in range(10)]
        other = await rig.connected("127.0.0.2")
        await until(lambda: len(rig.clients.connections) == 11)
        for sock in busy:
            sock.send(framed(packet("one.example")) * 100)
        other.send(framed(packet("one.example")))
        await until(lambda: rig.plugin.asked == 1001)
        assert rig.plugin.clients.index("127.0.0.2") <= 4 * tcp.TURN
        for sock in (*busy, other):
            sock.close()


async def test_incomplete_messages_count_as_held() -> None:
    async with listening(max_bytes=100_000) as rig:
        async with await Tcp.connect(rig.port) as first, await Tcp.connect(rig.port) as second:
            await first.send(b"\xff\xff" + bytes(60_000))
            await until(lambda: rig.clients.memory.held_bytes == 60_002)
            await second.send(b"\xff\xff" + bytes(60_000))
            assert await first.is_closed()
            await until(lambda: rig.clients.memory.held_bytes == 60_002)
        await until(lambda: rig.clients.memory.held_bytes == 0)


async def test_a_new_client_takes_the_place_of_the_one_that_is_idle_the_longest() -> None:
    async with listening(limit=3) as rig:
        streams = [await Tcp.connect(rig.port) for _ in range(3)]
        for stream in (streams[1], streams[2], streams[0]):
            assert answers(await stream.ask(packet("one.example"))) == ["10.0.0.1"]
        streams.append(await Tcp.connect(rig.port))
        assert answers(await streams[3].ask(packet("one.example"))) == ["10.0.0.1"]
        assert await streams[1].is_closed()
        for stream in (streams[0], streams[2], streams[3]):
            assert answers(await stream.ask(packet("one.example"))) == ["10.0.0.1"]
        assert (rig.requests.evicted, len(rig.clients.connections)) == (1, 3)
        for stream in streams:
            stream.writer.close()


async def test_a_client_that_waits_for_answers_cannot_keep_others_out() -> None:
    async with listening(limit=1) as rig, await Tcp.connect(rig.port) as waiting:
        await waiting.send(framed(packet("one.late")))
        await until(lambda: rig.plugin.asked == 1)
        async with await Tcp.connect(rig.port) as other:
            assert answers(await other.ask(packet("one.example"))) == ["10.0.0.1"]
        assert await waiting.is_closed()


async def test_a_chain_that_waits_for_nothing_answers_each_query_once() -> None:
    async with listening() as rig, await Tcp.connect(rig.port) as stream:
        rig.plugin.may_answer.set()
        await stream.send(b"".join(framed(packet("one.late", number=number)) for number in (1, 2)))
        assert [read(await stream.receive()).header.id for _ in range(2)] == [1, 2]
        assert answers(await stream.ask(packet("one.example"))) == ["10.0.0.1"]
        assert rig.plugin.asked == 3


async def test_who_closes_one_half_gets_the_pending_answers() -> None:
    async with listening() as rig, await Tcp.connect(rig.port) as stream:
        await stream.send(framed(packet("one.late", number=1)) + framed(packet("many.example", number=2)))
        await stream.send(framed(packet("one.late", number=3)))
        stream.writer.write_eof()
        assert len(answers(await stream.receive())) == MANY
        rig.plugin.may_answer.set()
        assert {read(await stream.receive()).header.id for _ in range(2)} == {1, 3}
        assert await stream.is_closed()


async def test_a_listener_that_closes_sends_the_pending_answers() -> None:
    async with listening() as rig:
        stream = await Tcp.connect(rig.port)
        await stream.send(framed(packet("one.late")))
        await until(lambda: rig.plugin.asked == 1)
        asyncio.get_running_loop().call_soon(rig.plugin.may_answer.set)  # in the next iteration, when it is closing
    assert answers(await stream.receive()) == ["10.0.0.1"]
    assert await stream.is_closed()
    stream.writer.close()
