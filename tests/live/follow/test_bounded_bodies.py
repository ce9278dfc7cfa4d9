"""What an API server sends without an end is not read without one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kdns.cluster.io import connection as module
from kdns.cluster.io.connection import Connection, RestStats
from kdns.cluster.io.pager import pages
from kdns.cluster.objects import Service
from kdns.cluster.source import Source
from kdns.cluster.watch import RESOURCES, Timing
from kdns.errors import ApiServerError


@pytest.fixture
async def endless() -> AsyncIterator[str]:
    """The URL of a server whose responses, of the status that the path names, do not end."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status = (await reader.readuntil(b"\r\n\r\n"))[5:8]
        writer.write(b"HTTP/1.1 %b X\r\nTransfer-Encoding: chunked\r\n\r\n" % status)
        try:
            while True:
                writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
                await writer.drain()
        except ConnectionError:
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"


@pytest.mark.parametrize(("path", "says"), [("/200", "a response of more than 100000 bytes"), ("/500", "500 xxx")])
async def test_a_body_without_an_end(endless: str, path: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 100_000)
    monkeypatch.setattr(module, "MAX_ERROR_BYTES", 100_000)
    async with asyncio.timeout(60), Connection(Source(endpoint=endless), RestStats(), Timing()) as connection:
        with pytest.raises(ApiServerError) as raised:
            await connection.call("GET", path)
    assert says in str(raised.value)


async def test_pages_without_an_end() -> None:
    class Server:
        server = "http://api"

        @asynccontextmanager
        async def stream(self, path: str, params: object) -> AsyncIterator[AsyncIterator[bytes]]:
            assert path == RESOURCES[Service].path
            assert params
            yield self.page()

        async def page(self) -> AsyncIterator[bytes]:
            metadata = {"resourceVersion": "1", "continue": "x"}
            yield json.dumps({"kind": "ServiceList", "apiVersion": "v1", "metadata": metadata, "items": []}).encode()

    with pytest.raises(ApiServerError, match="the same page follows itself"):
        async for _ in pages(Server(), RESOURCES[Service], {}, 500):
            pass


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (
            b"HTTP/1.1 301 x\r\nLocation: /round?a=1\r\nContent-Length: 0\r\n\r\n",
            "redirected 10 times, at last to /round",
        ),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "Bad status line"),
    ],
)
async def test_what_is_no_api_server_is_told_in_words(sent: bytes, says: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(sent)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        url = f"http://{host}:{port}"
        async with asyncio.timeout(60), Connection(Source(endpoint=url), RestStats(), Timing()) as connection:
            with pytest.raises(ApiServerError) as raised:
                await connection.call("GET", "/x")
    assert str(raised.value).startswith(f"{url}: {says}")
