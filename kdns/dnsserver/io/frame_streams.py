"""Sends dnstap's frames to collectors: a bounded queue each, over a connection that reconnects or a listening socket.

The framing is Frame Streams (fstrm, bidirectional). A data frame is its length in 4 bytes, and its content.
A control frame has the length 0, then its own length, and one type.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from struct import pack, unpack_from
from typing import Final

from kdns import logs
from kdns.dnsserver.io.encrypted.tls import server_context
from kdns.errors import InputError
from kdns.runtime.os_errors import os_reason
from kdns.runtime.tls import default_context
from kdns.serverblocks.directive import FrameSpec
from kdns.tally import Tally

ACCEPT: Final = 1
START: Final = 2
STOP: Final = 3
READY: Final = 4
FINISH: Final = 5
CONTENT_TYPE_FIELD: Final = 1
MAX_CONTROL_BYTES: Final = 512
CONTENT_TYPE: Final = b"protobuf:dnstap.Dnstap"
CONNECT_S: Final = 5.0
"""The timeout for connecting and the handshake."""
RETRY_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Delays before reconnecting; the last one repeats. They start over after a connection that lasted that long."""
FLUSH_S: Final = 1.0
"""The timeout of the final handshake."""
MAX_QUEUED_BYTES: Final = 256 << 20
MAX_COLLECTORS: Final = 16
"""The most collectors of a listening socket; further connections are closed."""
GATHER_S: Final = 0.005
"""Frames are collected for this long before they are written: a packet for each would cost more than the frame."""


class FrameStream:
    """The queue of one collector. Frames beyond `max_bytes` or the spec's limit are dropped and counted as lost."""

    def __init__(self, spec: FrameSpec, lost: Tally, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._spec = spec
        self._max_bytes = max_bytes
        self._lost = lost
        self._frames: deque[bytes] = deque()
        self._size_bytes = 0
        self._wake = asyncio.Event()
        self._tls: ssl.SSLContext | None = None
        self._warning = logs.RareWarning(__name__, "dnstap reader not reached", endpoint=str(spec))

    def put(self, content: bytes) -> None:
        """Never blocks."""
        if len(self._frames) >= self._spec.queued or self._size_bytes + len(content) > self._max_bytes:
            self._lost.count += 1
            return
        self._frames.append(data_frame(content))
        self._size_bytes += len(content) + 4
        if len(self._frames) == 1:
            self._wake.set()

    async def run(self) -> None:
        """Writes frames until the server block ends, then those that wait."""
        await _repeated(self._write_to_reader, self._warning)

    async def _write_to_reader(self) -> None:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await self._connect()
        await self.serve(reader, writer)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Writes frames until this task is cancelled; OSError, ValueError or EOFError if the connection fails."""
        try:
            async with asyncio.timeout(CONNECT_S):
                writer.write(control_frame(READY))
                await _control(reader, ACCEPT)
                writer.write(control_frame(START))
        except BaseException:
            _close(writer)
            raise
        writer.transport.set_write_buffer_limits(high=self._spec.buffer_bytes)
        try:
            await self._write(reader, writer)
        except asyncio.CancelledError:
            with suppress(OSError, ValueError, EOFError, TimeoutError):
                async with asyncio.timeout(FLUSH_S):
                    await self._finish(reader, writer)
            raise
        finally:
            _close(writer)

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        spec = self._spec
        if spec.address is None:
            return await asyncio.open_unix_connection(spec.path)
        if spec.scheme == "tls" and self._tls is None:  # in a thread: loading the system's roots takes 20 ms
            self._tls = await asyncio.to_thread(_context, spec)
        return await asyncio.open_connection(spec.address.host, spec.address.port, ssl=self._tls)

    async def _write(self, reader: StreamReader, writer: StreamWriter) -> None:
        closed = asyncio.ensure_future(reader.read(1))
        try:
            while not closed.done():
                waiting = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait((waiting, closed), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                await asyncio.sleep(GATHER_S)
                while self._frames and not closed.done():
                    writer.write(self._taken())
                    await writer.drain()
        finally:
            closed.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await closed
        raise EOFError

    def _taken(self) -> bytes:
        frames: list[bytes] = []
        size_bytes = 0
        while self._frames and size_bytes < self._spec.buffer_bytes:
            frames.append(self._frames.popleft())
            size_bytes += len(frames[-1])
        self._size_bytes -= size_bytes
        if not self._frames:
            self._wake.clear()
        return b"".join(frames)

    async def _finish(self, reader: StreamReader, writer: StreamWriter) -> None:
        while self._frames:
            writer.write(self._taken())
            await writer.drain()
        writer.write(control_frame(STOP))
        await _control(reader, FINISH)


class FrameListener:
    """The connected collectors. Without any, frames are dropped and not counted as lost."""

    def __init__(self, spec: FrameSpec, lost: Tally) -> None:
        self._spec = spec
        self._lost = lost
        self._streams: dict[asyncio.Task[None], FrameStream] = {}
        self._warning = logs.RareWarning(__name__, "dnstap does not listen", endpoint=str(spec))

    def put(self, content: bytes) -> None:
        """Never blocks."""
        for stream in self._streams.values():
            stream.put(content)

    async def run(self) -> None:
        """Serves collectors until the server block ends, then writes the frames that wait."""
        await _repeated(self._listen, self._warning)

    async def _listen(self) -> None:
        server = await self._started()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()
            tasks = tuple(self._streams)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _started(self) -> asyncio.Server:
        spec = self._spec
        if spec.address is None:
            return await asyncio.start_unix_server(self._connected, spec.path)  # replaces a socket that is there
        context = server_context(spec.tls, ()) if spec.scheme == "tls" and spec.tls else None
        return await asyncio.start_server(
            self._connected,
            spec.address.host or None,
            spec.address.port,
            ssl=context,
            ssl_handshake_timeout=CONNECT_S if context else None,
            reuse_port=True,  # a reload listens before the earlier block ends
        )

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._streams) >= MAX_COLLECTORS:
            writer.transport.abort()
            return
        self._streams[task] = stream = FrameStream(self._spec, self._lost, MAX_QUEUED_BYTES // MAX_COLLECTORS)
        try:
            with suppress(OSError, ValueError, EOFError, TimeoutError):  # it disconnected, or is not a collector
                await stream.serve(reader, writer)
        finally:
            del self._streams[task]


async def _repeated(work: Callable[[], Awaitable[None]], warning: logs.RareWarning) -> None:
    """Retries after each failure with backoff, until the server block ends."""
    loop, failures = asyncio.get_running_loop(), 0
    while True:
        began_s = loop.time()
        try:
            await work()
        except (OSError, ValueError, EOFError, InputError) as error:
            warning.log(error=_reason(error))
        if loop.time() - began_s > RETRY_S[-1]:
            failures = 0
        await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
        failures += 1


def _close(writer: StreamWriter) -> None:
    """Aborts if the collector has not read everything, because it may never do so."""
    if writer.transport.get_write_buffer_size():
        writer.transport.abort()
    else:
        writer.close()


def _context(spec: FrameSpec) -> ssl.SSLContext:
    context = default_context()
    if spec.skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the reader closed the connection"
    if isinstance(error, TimeoutError):
        return "the reader does not answer in time"
    return os_reason(error) if isinstance(error, OSError) else str(error)


async def _control(reader: StreamReader, expected: int) -> None:
    head = await reader.readexactly(8)
    size_bytes = int.from_bytes(head[4:], "big")
    if head[:4] != bytes(4) or size_bytes > MAX_CONTROL_BYTES:
        raise ValueError("the reader does not speak Frame Streams")
    control_kind(await reader.readexactly(size_bytes), expected)


def data_frame(content: bytes) -> bytes:
    return pack("!I", len(content)) + content


def control_frame(kind: int) -> bytes:
    """READY, START and ACCEPT name dnstap's content type."""
    field = pack("!II", CONTENT_TYPE_FIELD, len(CONTENT_TYPE)) + CONTENT_TYPE if kind in {READY, START, ACCEPT} else b""
    return pack("!III", 0, 4 + len(field), kind) + field


def control_kind(content: bytes, expected: int) -> int:
    """The type of a control frame; ValueError for an unexpected type or content type."""
    if len(content) < 4:
        raise ValueError("a control frame without a type")
    (kind,) = unpack_from("!I", content)
    if kind != expected:
        raise ValueError(f"expected a control frame of type {expected}, got type {kind}")
    types, position = [], 4
    while position + 8 <= len(content):
        field, size = unpack_from("!II", content, position)
        if field == CONTENT_TYPE_FIELD:
            types.append(content[position + 8 : position + 8 + size])
        position += 8 + size
    if types and CONTENT_TYPE not in types:
        raise ValueError(f"the reader wants {types[0]!r}")
    return int(kind)
