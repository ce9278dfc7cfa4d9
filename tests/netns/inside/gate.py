"""A way to a server that a test can close and open: connections are ended and refused, or nothing passes any more."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass
class Gate:
    """Leads from a port of its own to another one. It works in a thread, whatever its test is doing."""

    to_port: int
    port: int = 0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _flows: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _ways: set[asyncio.Task[None]] = field(default_factory=set)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._refuse())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self) -> None:
        self._do(self._open())

    def refuse(self) -> None:
        """End all connections and take no new ones."""
        self._do(self._refuse())

    def hold(self) -> None:
        """Let nothing pass; connections stay."""
        self._do(self._hold())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> None:
        self._flows.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._lead, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _hold(self) -> None:
        self._flows.clear()

    async def _refuse(self) -> None:
        if self._server:
            self._server.close()
            self._server = None
        ways = list(self._ways)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._ways.add(task)
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self.to_port)
        try:
            with suppress(OSError, asyncio.CancelledError):
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._copy(reader, other_writer))
                    both.create_task(self._copy(other_reader, writer))
        finally:
            self._ways.discard(task)
            for each in (writer, other_writer):
                each.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._flows.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # one end is enough for both
