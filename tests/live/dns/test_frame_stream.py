"""Frames over real sockets: the handshake, order, what is lost, another connection, and the end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from frame_reader import FrameReader

from kdns.aio.dns.frame_stream import FrameStream
from kdns.dns.response import Tally
from kdns.net import HostPort
from kdns.plugins.dnstap.frames import FrameSpec


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
