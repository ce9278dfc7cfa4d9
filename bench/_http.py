"""The least HTTP client that can load a server: one request at a time on a connection, one task for many of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A response; its body as sent, compressed or not."""

    status: int
    body: bytes


class Connection:
    """One connection, kept alive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def __call__(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request and read its response; SystemExit when it is refused."""
        sent = {
            "Host": "localhost",
            "User-Agent": "bench/1",
            "Content-Length": str(len(body)),
            "Content-Type": "application/json",
        }
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        self._writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        async with asyncio.timeout(PATIENCE_S):
            answer = await self._answer()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {answer.body[:500].decode('utf-8', 'replace')}")
        return answer

    async def _answer(self) -> Answer:
        status, headers = await self._head()
        if "chunked" not in headers.get("transfer-encoding", ""):
            return Answer(status, await self._reader.readexactly(int(headers.get("content-length", "0"))))
        return Answer(status, b"".join([chunk async for chunk in self._chunks()]))

    async def _head(self) -> tuple[int, dict[str, str]]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        return int(head[0].split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readline(), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()

    async def lines(self, method: str, path: str, body: bytes = b"") -> AsyncIterator[bytes]:
        """The lines of an endless response."""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        status, _ = await self._head()
        if status != 200:
            raise SystemExit(f"{method} {path}: {status}")
        rest = b""
        async for chunk in self._chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """A connection to a server on loopback."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def sent_all(port: int, connections: int, count: int, send: Callable[[Connection, int], object]) -> float:
    """Seconds that `count` requests take over so many connections; `send(connection, number)` makes one."""
    numbers = iter(range(count))

    async def work() -> None:
        async with connected(port) as connection:
            for number in numbers:
                await send(connection, number)  # type: ignore[misc]

    began_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    return time.perf_counter() - began_s
