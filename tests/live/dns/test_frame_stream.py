"""Frames over real sockets: the handshake, order, what is lost, another connection, and the end."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

from frame_reader import FrameReader, decoded, message_of

from kdns.aio.dns.frame_stream import FrameStream
from kdns.aio.dns.server import DnsServer
from kdns.corefile.parse import parse
from kdns.dns.message import query
from kdns.dns.response import Tally
from kdns.dns.types import A
from kdns.net import HostPort
from kdns.plugins.dnstap.frames import FrameSpec
from kdns.plugins.server_config import configure


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_frames_arrive_in_order_and_the_rest_at_the_end(tmp_path: Path) -> None:
    path = str(tmp_path / "tap.sock")
    reader = FrameReader()
    lost = Tally()
    async with await asyncio.start_unix_server(reader.serve, path):
        stream = FrameStream(FrameSpec("unix", path), lost)
        task = asyncio.create_task(stream.run())
        expected = [b"%d" % number for number in range(2000)]
        for frame in expected[:1000]:
            stream.put(frame)
        await reader.wait_for(1000)
        for frame in expected[1000:]:
            stream.put(frame)
        await ended(task)
        assert await reader.wait_for(2000) == expected
        assert (reader.is_ended, lost.count, reader.connections) == (True, 0, 1)


async def test_a_reader_that_comes_later_gets_what_had_room() -> None:
    reader = FrameReader()
    lost = Tally()
    server = await asyncio.start_server(reader.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    stream = FrameStream(FrameSpec("tcp", address=HostPort("127.0.0.1", port), queued=10), lost)
    task = asyncio.create_task(stream.run())
    for number in range(25):
        stream.put(b"%d" % number)
    assert lost.count == 15
    async with await asyncio.start_server(reader.serve, "127.0.0.1", port):
        assert await reader.wait_for(10) == [b"%d" % number for number in range(10)]
        stream.put(b"more")
        assert (await reader.wait_for(11))[-1] == b"more"
        await ended(task)
    assert lost.count == 15


async def test_a_connection_that_ends_is_made_again() -> None:
    reader = FrameReader()
    first = asyncio.Event()

    async def once(incoming: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not first.is_set():
            first.set()
            writer.close()
            return
        await reader.serve(incoming, writer)

    async with await asyncio.start_server(once, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        stream = FrameStream(FrameSpec("tcp", address=HostPort("127.0.0.1", port)), Tally())
        task = asyncio.create_task(stream.run())
        stream.put(b"copy")
        assert await reader.wait_for(1) == [b"copy"]
        await ended(task)


async def test_a_server_copies_what_clients_and_upstreams_say(tmp_path: Path) -> None:
    path = tmp_path / "tap.sock"
    reader = FrameReader()
    upstream = DnsServer(configure(parse(".:0 {\nbind 127.0.0.1\nwhoami\n}")))
    async with await asyncio.start_unix_server(reader.serve, str(path)):
        await upstream.start()
        host, port = upstream.addresses[0]
        text = f".:0 {{\nbind 127.0.0.1\ndnstap {path} full {{\nidentity me\n}}\nforward . {host}:{port}\n}}"
        server = DnsServer(configure(parse(text)))
        try:
            await server.start()
            packet = query("www.example.", A)
            response = await asked(server.addresses[0], packet)
            frames = await reader.wait_for(4)
        finally:
            await server.stop()
            await upstream.stop()
    assert {decoded(frame)[1] for frame in frames} == {b"me"}
    found = {int(kind): fields for fields in map(message_of, frames) if isinstance(kind := fields[1], int)}
    assert found.keys() == {5, 6, 7, 8}
    assert (found[5][10], found[6][14]) == (packet, response)
    assert {found[kind][7] for kind in (7, 8)} == {port}
    times = [found[kind][number] for kind, number in ((5, 8), (7, 8), (8, 12), (6, 12))]
    assert times == sorted(times)
    assert reader.is_ended


async def asked(address: tuple[str, int], packet: bytes) -> bytes:
    """A server's response over UDP."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.connect(address)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, packet)
        async with asyncio.timeout(5):
            return await loop.sock_recv(sock, 4096)
