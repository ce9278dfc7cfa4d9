"""UDP through relays, over real sockets."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import pytest
from relay_rig import DEADLINE_S, VIP, free_port, rig, service, until

from kdns.proxy.userspace.io import udp_relay

AGAIN_S = 0.2


class Answering(asyncio.DatagramProtocol):
    """Sends back its name and what it got."""

    def __init__(self, name: bytes) -> None:
        self.name, self.clients = name, set[tuple[str, int]]()
        self.transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.clients.add(addr)
        self.transport.sendto(self.name + data, addr)


@asynccontextmanager
async def answering(name: bytes, address: str) -> AsyncIterator[tuple[tuple[str, int], Answering]]:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(lambda: Answering(name), local_addr=(address, 0))
    try:
        yield transport.get_extra_info("sockname"), protocol
    finally:
        transport.close()


@asynccontextmanager
async def client(port: int, source: str = "127.0.0.1") -> AsyncIterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setblocking(False)
        made.bind((source, 0))
        made.connect((VIP, port))  # takes no answer from another address
        yield made


async def ask(sock: socket.socket, what: bytes = b"?", *, again_s: float = DEADLINE_S) -> bytes:
    """The answer; asked again where a datagram may be lost."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_S):
        while True:
            sock.send(what)
            try:
                return await asyncio.wait_for(loop.sock_recv(sock, 1 << 16), again_s)
            except TimeoutError:
                continue


async def test_each_client_has_an_endpoint_and_a_socket_of_its_own() -> None:
    async with AsyncExitStack() as stack:
        pairs = [await stack.enter_async_context(answering(each, f"127.1.0.{each[0]}")) for each in (b"a", b"b")]
        made, port = await stack.enter_async_context(rig(udp_idle_s=DEADLINE_S)), free_port(kind=socket.SOCK_DGRAM)
        await made.have(service("dns", port, "UDP"), *(pair for pair, _ in pairs))
        clients = [await stack.enter_async_context(client(port)) for _ in range(4)]
        said = [[await ask(each, b"%d" % n) for _ in range(3)] for n, each in enumerate(clients)]
        assert said == [[b"a0"] * 3, [b"b1"] * 3, [b"a2"] * 3, [b"b3"] * 3]
        assert [len(protocol.clients) for _, protocol in pairs] == [2, 2]
        counters = made.counters("dns", "UDP")
        assert (counters.flows, counters.active, counters.received_bytes, counters.sent_bytes) == (4, 4, 12, 24)


async def test_affinity_counts_for_datagrams_too() -> None:
    async with AsyncExitStack() as stack:
        pairs = [await stack.enter_async_context(answering(each, f"127.1.0.{each[0]}")) for each in (b"a", b"b")]
        made, port = await stack.enter_async_context(rig(udp_idle_s=DEADLINE_S)), free_port(kind=socket.SOCK_DGRAM)
        await made.have(service("dns", port, "UDP", affinity_s=100), *(pair for pair, _ in pairs))
        said = {}
        for source in ("127.0.0.1", "127.0.0.2"):
            clients = [await stack.enter_async_context(client(port, source)) for _ in range(3)]
            said[source] = [await ask(each) for each in clients]
        assert said == {"127.0.0.1": [b"a?"] * 3, "127.0.0.2": [b"b?"] * 3}


@pytest.mark.parametrize("size", [0, 1, 1472, 4096, 4097, 65000])
async def test_datagrams_of_any_size(size: int) -> None:
    async with answering(b"a", "127.1.0.1") as (pair, _), rig(udp_idle_s=DEADLINE_S) as made:
        port = free_port(kind=socket.SOCK_DGRAM)
        await made.have(service("dns", port, "UDP"), pair)
        async with client(port) as asking:
            sent = os.urandom(size)
            assert await ask(asking, sent) == b"a" + sent


async def test_a_silent_client_is_forgotten() -> None:
    clock = [0.0]
    async with answering(b"a", "127.1.0.1") as (pair, protocol), rig(udp_idle_s=0.05, now_s=lambda: clock[0]) as made:
        port = free_port(kind=socket.SOCK_DGRAM)
        await made.have(service("dns", port, "UDP"), pair)
        async with client(port) as asking:
            for clock[0] in (0.0, 0.04, 0.08):
                assert await ask(asking) == b"a?"
            assert len(protocol.clients) == made.counters("dns", "UDP").active == 1
            clock[0] = 0.13
            await until(lambda: made.counters("dns", "UDP").active == 0)
            assert await ask(asking) == b"a?"
        assert len(protocol.clients) == 2


async def test_a_refusing_endpoint_is_passed_over() -> None:
    async with answering(b"a", "127.1.0.1") as (pair, _), rig(udp_idle_s=DEADLINE_S) as made:
        port, dead = free_port(kind=socket.SOCK_DGRAM), ("127.0.9.1", free_port("127.0.9.1", socket.SOCK_DGRAM))
        await made.have(service("dns", port, "UDP", affinity_s=100), dead, pair)
        async with client(port) as asking:  # what goes to an endpoint that is not there is lost, and tells of it
            assert await ask(asking, again_s=AGAIN_S) == b"a?"
        async with client(port) as asking:
            assert await ask(asking) == b"a?"
        counters = made.counters("dns", "UDP")
        assert (counters.flows, counters.retries, counters.failures) == (2, 1, 0)


async def test_flows_end_with_their_endpoint_and_with_their_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp_relay, "LAST_ANSWERS_S", 0.01)
    async with AsyncExitStack() as stack:
        one, _ = await stack.enter_async_context(answering(b"a", "127.1.0.1"))
        two, _ = await stack.enter_async_context(answering(b"b", "127.1.0.2"))
        made, port = await stack.enter_async_context(rig(udp_idle_s=DEADLINE_S)), free_port(kind=socket.SOCK_DGRAM)
        await made.have(service("dns", port, "UDP"), one)
        asking = await stack.enter_async_context(client(port))
        assert await ask(asking) == b"a?"
        await made.have(service("dns", port, "UDP"), two)
        await until(lambda: made.counters("dns", "UDP").active == 0)
        assert await ask(asking) == b"b?"
        await made.have(service("dns", port, "UDP"), one, two)
        assert await ask(asking) == b"b?"
        await made.forget("dns")
        assert not made.mode.listening
        asking.send(b"?")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.wait_for(asyncio.get_running_loop().sock_recv(asking, 10), DEADLINE_S)


async def test_an_answer_under_way_outlives_the_endpoint() -> None:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as late:
        late.setblocking(False)
        late.bind(("127.1.0.1", 0))
        async with answering(b"b", "127.1.0.2") as (two, _), rig(udp_idle_s=DEADLINE_S) as made:
            port = free_port(kind=socket.SOCK_DGRAM)
            await made.have(service("dns", port, "UDP"), late.getsockname())
            async with client(port) as asking, asyncio.timeout(DEADLINE_S):
                asking.send(b"?")
                query, relay = await loop.sock_recvfrom(late, 10)
                await made.have(service("dns", port, "UDP"), two)
                late.sendto(b"a" + query, relay)
                assert await loop.sock_recv(asking, 10) == b"a?"
                assert await ask(asking) == b"b?"


async def test_there_is_a_bound() -> None:
    async with AsyncExitStack() as stack:
        pair, _ = await stack.enter_async_context(answering(b"a", "127.1.0.1"))
        made = await stack.enter_async_context(rig(limit=1 + 4, udp_idle_s=DEADLINE_S))
        port = free_port(kind=socket.SOCK_DGRAM)
        await made.have(service("dns", port, "UDP"), pair)
        clients = [await stack.enter_async_context(client(port)) for _ in range(3)]
        assert [await ask(each) for each in clients[:2]] == [b"a?", b"a?"]
        clients[2].send(b"?")
        await until(lambda: made.counters("dns", "UDP").turned_away == 1)
        assert [await ask(each) for each in clients[:2]] == [b"a?", b"a?"]
