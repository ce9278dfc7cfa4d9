"""TCP through relays, over real sockets."""

import asyncio
import hashlib
import os
import resource
import socket
import struct
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest
from relay_rig import DEADLINE_S, VIP, Rig, echo, free_port, heard, rig, saying, served, service, until, until_still

from kdns.proxy.userspace.io.proxier import UPKEEP_S


async def several(stack: AsyncExitStack, *names: str) -> list[tuple[str, int]]:
    return [await stack.enter_async_context(served(saying(name), f"127.1.0.{n}")) for n, name in enumerate(names, 1)]


async def test_each_endpoint_in_turn() -> None:
    async with AsyncExitStack() as stack:
        pairs, made, port = await several(stack, "a", "b", "c"), await stack.enter_async_context(rig()), free_port()
        await made.have(service("web", port), *pairs)
        said = [await heard(port) for _ in range(7)]
        assert sorted(said[:3]) == ["a", "b", "c"]
        assert said == [*said[:3], *said[:3], said[0]]
        assert made.counters("web").flows == 7
        await until(lambda: made.counters("web").active == 0)
        assert made.counters("web").sent_bytes == 7


async def test_a_client_keeps_its_endpoint_while_it_is_there() -> None:
    async with AsyncExitStack() as stack:
        pairs, made, port = await several(stack, "a", "b", "c"), await stack.enter_async_context(rig()), free_port()
        await made.have(service("web", port, affinity_s=100), *pairs)
        firsts = {source: await heard(port, source=source) for source in ("127.0.0.1", "127.0.0.2", "127.0.0.3")}
        assert sorted(firsts.values()) == ["a", "b", "c"]
        for _ in range(3):
            assert {source: await heard(port, source=source) for source in firsts} == firsts
        gone = pairs.pop("abc".index(firsts["127.0.0.2"]))
        await made.have(service("web", port, affinity_s=100), *pairs)
        second = await heard(port, source="127.0.0.2")
        assert second != firsts["127.0.0.2"]
        await made.have(service("web", port, affinity_s=100), *pairs, gone)
        assert await heard(port, source="127.0.0.2") == second
        assert await heard(port, source="127.0.0.1") == firsts["127.0.0.1"]


async def test_affinity_ends_when_its_time_is_over() -> None:
    clock = [0.0]
    async with AsyncExitStack() as stack:
        pairs = await several(stack, "a", "b")
        made, port = await stack.enter_async_context(rig(now_s=lambda: clock[0])), free_port()
        await made.have(service("web", port, affinity_s=10), *pairs)
        said = []
        for now_s in (0.0, 9.9, 19.8, 29.8, 30.0):  # each connection begins the time again
            clock[0] = now_s
            said.append(await heard(port))
        assert said == ["a", "a", "a", "b", "b"]


async def test_refused_endpoints_are_passed_over_and_affinity_moves() -> None:
    async with AsyncExitStack() as stack:
        [good] = await several(stack, "good")
        made, port = await stack.enter_async_context(rig()), free_port()
        dead = [(f"127.0.9.{n}", free_port(f"127.0.9.{n}")) for n in (1, 2)]
        await made.have(service("web", port, affinity_s=100), *dead, good)
        assert [await heard(port) for _ in range(3)] == ["good"] * 3
        counters = made.counters("web")
        assert (counters.flows, counters.retries, counters.failures) == (3, 2, 0)


async def test_after_four_attempts_the_client_is_reset() -> None:
    async with rig() as made:
        port, dead = free_port(), [(f"127.0.9.{n}", free_port(f"127.0.9.{n}")) for n in range(1, 6)]
        await made.have(service("web", port), *dead)
        assert await heard(port) == "ConnectionResetError"
        counters = made.counters("web")
        assert (counters.flows, counters.retries, counters.failures, counters.active) == (1, 3, 1, 0)


def silent_endpoint(stack: AsyncExitStack, address: str) -> tuple[str, int]:
    """Packets to it are dropped: its queue of connections is full."""
    listener = stack.enter_context(socket.socket())
    listener.bind((address, 0))
    listener.listen(0)
    pair: tuple[str, int] = listener.getsockname()
    for _ in range(8):
        filler = stack.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex(pair)
    return pair


async def test_silent_endpoints_cost_a_quarter_and_half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncExitStack() as stack:
        [good] = await several(stack, "good")
        made, port = await stack.enter_async_context(rig()), free_port()
        silent = [silent_endpoint(stack, f"127.0.9.{n}") for n in (1, 2)]
        await made.have(service("web", port), *silent, good)
        loop, waits_s = asyncio.get_running_loop(), list[float]()
        call_later = loop.call_later

        def noted(delay_s: float, *what: Any) -> asyncio.TimerHandle:
            if delay_s != UPKEEP_S:
                waits_s.append(delay_s)
            return call_later(delay_s, *what)

        monkeypatch.setattr(loop, "call_later", noted)
        started_s = time.monotonic()
        assert await heard(port) == "good"
        assert time.monotonic() - started_s >= 0.75
        assert waits_s == [0.25, 0.5, 1.0], "the last of them was not needed"
        assert made.counters("web").retries == 2


async def test_the_end_of_one_direction_leaves_the_other_open() -> None:
    async def answers_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read()
        writer.write(b"you said " + asked)
        await writer.drain()

    got = asyncio.Queue[bytes]()

    async def ends_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"all I say")
        writer.write_eof()
        await got.put(await reader.read())

    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(rig())
        ports = [free_port(), free_port()]
        for name, handler, port in zip(("ask", "tell"), (answers_at_the_end, ends_first), ports, strict=True):
            await made.have(service(name, port), await stack.enter_async_context(served(handler)))
        reader, writer = await asyncio.open_connection(VIP, ports[0])
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"you said hello"
        writer.close()
        reader, writer = await asyncio.open_connection(VIP, ports[1])
        assert await reader.read() == b"all I say"
        for _ in range(3):
            writer.write(b"more ")
            await writer.drain()
        writer.close()
        assert await asyncio.wait_for(got.get(), DEADLINE_S) == b"more more more "
        await until(lambda: not made.counters("ask").active and not made.counters("tell").active)


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


async def read_all(sock: socket.socket) -> None:
    while await asyncio.get_running_loop().sock_recv(sock, 1 << 20):
        pass


@pytest.mark.parametrize("who", ["client", "endpoint"])
@pytest.mark.parametrize("blocked", [False, True])
async def test_a_reset_is_passed_on(who: str, *, blocked: bool) -> None:
    """Also while the other side takes nothing of what is under way."""
    loop = asyncio.get_running_loop()
    with socket.socket() as listener:
        listener.bind(("127.1.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        async with rig() as made:
            port = free_port()
            await made.have(service("web", port), listener.getsockname())
            client = socket.socket()
            client.setblocking(False)
            await loop.sock_connect(client, (VIP, port))
            endpoint, _ = await loop.sock_accept(listener)
            await loop.sock_sendall(client, b"x")
            assert await loop.sock_recv(endpoint, 1) == b"x"
            one, other = (client, endpoint) if who == "client" else (endpoint, client)
            if blocked:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await loop.sock_sendall(one, bytes(64 << 20))
            reset(one)
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(read_all(other), DEADLINE_S)
            other.close()
            await until(lambda: made.counters("web").active == 0)


async def test_large_transfers_arrive_whole_both_ways_at_once() -> None:
    sent = [os.urandom(1 << 20) * 48, os.urandom(1 << 20) * 48]

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mine: bytes) -> str:
        async def send() -> None:
            writer.write(mine)
            await writer.drain()
            writer.write_eof()

        digest = hashlib.sha256()
        sending = asyncio.create_task(send())
        while piece := await reader.read(1 << 18):
            digest.update(piece)
        await sending
        return digest.hexdigest()

    got = asyncio.Queue[str]()

    async def endpoint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await got.put(await exchange(reader, writer, sent[1]))

    async with rig() as made, served(endpoint) as pair:
        port = free_port()
        await made.have(service("web", port), pair)
        reader, writer = await asyncio.open_connection(VIP, port)
        received = await exchange(reader, writer, sent[0])
        writer.close()
        assert received == hashlib.sha256(sent[1]).hexdigest()
        assert await asyncio.wait_for(got.get(), DEADLINE_S) == hashlib.sha256(sent[0]).hexdigest()
        await until(lambda: made.counters("web").active == 0)
        counters = made.counters("web")
        assert (counters.received_bytes, counters.sent_bytes) == (len(sent[0]), len(sent[1]))


async def test_nobody_reads_more_than_the_other_side_takes() -> None:
    may_read = asyncio.Event()
    got = asyncio.Queue[int]()

    async def lazy(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await may_read.wait()
        total = 0
        while piece := await reader.read(1 << 18):
            total += len(piece)
        await got.put(total)

    async with rig() as made, served(lazy) as pair:
        port, wanted = free_port(), 64 << 20
        await made.have(service("web", port), pair)
        reader, writer = await asyncio.open_connection(VIP, port)
        writer.write(bytes(wanted))
        await until_still(lambda: made.counters("web").received_bytes)
        assert 0 < made.counters("web").received_bytes < wanted // 2
        may_read.set()
        writer.write_eof()
        assert await asyncio.wait_for(got.get(), DEADLINE_S) == wanted
        assert await reader.read() == b""
        writer.close()


async def test_a_thousand_connections_at_once() -> None:
    count = min(1000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 12)  # or as many as this process may have
    async with rig() as made, served(echo) as pair:
        port = free_port()
        await made.have(service("web", port), pair)
        opened = await asyncio.gather(*(asyncio.open_connection(VIP, port) for _ in range(count)))
        await until(lambda: made.counters("web").active == count)
        for number, (_, writer) in enumerate(opened):
            writer.write(f"{number:05}".encode())
        for number, (reader, _) in enumerate(opened):
            assert await asyncio.wait_for(reader.readexactly(5), DEADLINE_S) == f"{number:05}".encode()
        for _, writer in opened:
            writer.close()
        await until(lambda: made.counters("web").active == 0)


async def test_there_is_a_bound_and_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    async with rig(limit=1 + 6 * 3) as made, served(echo) as pair:
        port = free_port()
        await made.have(service("web", port), pair)
        sources = [(f"127.0.0.{number}", 0) for number in (11, 12, 13)]
        opened = [await asyncio.open_connection(VIP, port, local_addr=source) for source in sources]
        await until(lambda: made.counters("web").active == 3)
        assert [await heard(port) for _ in range(2)] == ["ConnectionResetError"] * 2
        assert made.counters("web").turned_away == 2
        assert capsys.readouterr().out.count("no descriptors left for relays") == 1
        opened[0][1].close()
        await until(lambda: made.counters("web").active == 2)
        reader, writer = await asyncio.open_connection(VIP, port)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        for _, each in (*opened, (reader, writer)):
            each.close()


async def test_a_client_leaves_as_much_as_it_holds_to_others(capsys: pytest.CaptureFixture[str]) -> None:
    """One that takes all that it can get has half, the next one a quarter; what ends is free again."""
    async with rig(limit=1 + 6 * 16) as made, served(echo) as pair:
        port = free_port()
        await made.have(service("web", port), pair)
        held = dict[str, list[asyncio.StreamWriter]]()

        async def greedy(source: str) -> int:
            while True:
                try:
                    reader, writer = await asyncio.open_connection(VIP, port, local_addr=(source, 0))
                except ConnectionResetError:
                    return len(held[source])
                try:
                    writer.write(b"x")
                    await asyncio.wait_for(reader.readexactly(1), DEADLINE_S)
                except (ConnectionError, asyncio.IncompleteReadError):
                    writer.close()
                    return len(held[source])
                held.setdefault(source, []).append(writer)

        assert [await greedy(f"127.0.0.{number}") for number in (11, 12, 13)] == [8, 4, 2]
        assert await heard_echo(port, "127.0.0.14")
        assert capsys.readouterr().out.count("a client has its share of the descriptors for relays") == 1
        for writer in held.pop("127.0.0.11"):
            writer.close()
        await until(lambda: made.counters("web").active == 6)
        assert await greedy("127.0.0.15") == 5
        for writers in held.values():
            for writer in writers:
                writer.close()


async def heard_echo(port: int, source: str) -> bool:
    reader, writer = await asyncio.open_connection(VIP, port, local_addr=(source, 0))
    writer.write(b"x")
    is_heard = await asyncio.wait_for(reader.readexactly(1), DEADLINE_S) == b"x"
    writer.close()
    return is_heard


async def test_endpoints_that_are_virtual_ips_make_no_circle() -> None:
    async with rig() as made:
        port = free_port()
        await made.have(service("web", port), (VIP, port))
        assert await heard(port) == "ConnectionResetError"
        assert made.counters("web").flows == 1
        await check_no_flow(made)


async def check_no_flow(made: Rig) -> None:
    await until(lambda: made.counters("web").active == 0)
    assert made.counters("web").failures == 1
