"""Connections that bring nothing: they end, and do not keep others out."""

import asyncio
import gzip
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest
from fake_api_certs import contexts
from rest_client import serving

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.server.access import ADMIN
from kdns.controlplane.server.io import request as body
from kdns.controlplane.server.io import server as rest
from kdns.controlplane.server.io.authentication import RestConfig, user_of_request
from kdns.runtime.connections import MAX_CONNECTIONS, ConnectionKind

DEADLINE_S = 60.0
VERSION = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
UNFINISHED = b"POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"


async def answer_until_closed(server: rest.RestServer, sent: bytes) -> bytes:
    """Everything the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection(*server.address)
    try:
        writer.write(sent)
        async with asyncio.timeout(DEADLINE_S):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /version HTTP/1.1\r\nHo"])
async def test_a_connection_without_a_whole_request_ends(sent: bytes) -> None:
    async with serving(idle_s=1.0) as api:
        assert await answer_until_closed(api.server, sent) == b""


async def test_a_connection_between_two_requests_ends() -> None:
    async with serving(idle_s=1.0) as api:
        assert (await answer_until_closed(api.server, VERSION)).startswith(b"HTTP/1.1 200")


async def test_a_body_that_does_not_come_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "READ_TIMEOUT_S", 0.2)
    async with serving() as api:
        reader, writer = await asyncio.open_connection(*api.server.address)
        writer.write(UNFINISHED)
        async with asyncio.timeout(DEADLINE_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()


@dataclass
class Client:
    """A connection that stays open between requests."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def get(self, path: str, token: str = "") -> int:
        """The status of the response, 0 where the connection ended without one."""
        authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\n".encode())
        try:
            async with asyncio.timeout(DEADLINE_S):
                head = await self.reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                await self.reader.readexactly(int(length[1]) if length else 0)
        except (ConnectionError, asyncio.IncompleteReadError):
            return 0
        return int(head.split()[1])


Connect: TypeAlias = Callable[..., Awaitable[Client]]
LIST = "/api/v1/namespaces"


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connects to a server, and closes the connections at the end."""
    writers: list[asyncio.StreamWriter] = []

    async def connected(server: rest.RestServer, trust: ssl.SSLContext | None = None) -> Client:
        reader, writer = await asyncio.open_connection(*server.address, ssl=trust)
        writers.append(writer)
        return Client(reader, writer)

    yield connected
    for writer in writers:
        writer.transport.abort()


@pytest.mark.parametrize("has_tls", [False, True])
async def test_connections_without_a_token_take_no_places_of_those_with_one(
    has_tls: bool, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAX_CONNECTIONS, ConnectionKind.UNAUTHENTICATED, 4)
    tls, trust = contexts(tmp_path) if has_tls else (None, None)
    async with serving(tokens={"good": ADMIN}, ssl_context=tls) as api:
        early = [await connect(api.server, trust) for _ in range(10)]
        assert [await each.get(LIST, "good") for each in early[6:]] == [200] * 4
        for _ in range(20):
            await connect(api.server)  # which sends nothing, under TLS not even a ClientHello
        useless = [await connect(api.server, trust) for _ in range(20)]
        assert [await each.get("/version") for each in useless[17:]] == [200] * 3
        assert [await each.get("/version") for each in useless[17:]] == [0] * 3
        late = await connect(api.server, trust)
        assert await late.get(LIST, "good") == 200
        assert [await each.get(LIST, "good") for each in early[6:]] == [200] * 4
        assert [await each.get("/version") for each in useless[:15]] == [0] * 15


async def test_who_has_no_token_is_done_after_one_answer(connect: Connect) -> None:
    async with serving(tokens={"good": ADMIN}) as api:
        client = await connect(api.server)
        assert [await client.get(LIST, "bad"), await client.get(LIST, "good")] == [401, 0]
        client = await connect(api.server)
        assert [await client.get("/version"), await client.get(LIST, "good")] == [200, 0]
        client = await connect(api.server)
        assert [await client.get("/version", "good"), await client.get("/version")] == [200, 200]


async def test_idle_connections_give_way_and_watches_do_not(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAX_CONNECTIONS, ConnectionKind.API, 2)
    async with serving() as api:
        idle, watching, late = await connect(api.server), await connect(api.server), await connect(api.server)
        assert await idle.get(LIST) == 200
        assert await watching.get(f"{LIST}?watch=1") == 200
        assert await late.get(LIST) == 200
        assert await idle.get(LIST) == 0
        assert await late.get(f"{LIST}?watch=1") == 200
        assert await (await connect(api.server)).get(LIST) == 429
        assert api.server.watching == 2


@pytest.mark.parametrize(("token", "status"), [("good", 415), ("bad", 401)])
async def test_no_body_is_inflated(token: str, status: int) -> None:
    async with serving(tokens={"good": ADMIN}) as api:
        headers = {"Authorization": f"Bearer {token}", "Content-Encoding": "gzip"}
        async with api.session.post(LIST, data=gzip.compress(b"{}"), headers=headers) as response:
            assert response.status == status


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:80", "LOCALHOST.:80", "[::1]:80", "[::1]", "127.0.0.1:"])
def test_own_hosts(host: str) -> None:
    assert user_of_request(RestConfig(), LIST, {"Host": host}, None, 0)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:80@evil.com",
        "127.0.0.1:evil.com",
        "127.0.0.1:80:80",
        "127.0.0.1@evil.com",
        "[::1]@evil.com",
        "[::1].evil.com:80",
        "localhost.evil.com",
        "",
    ],
)
def test_foreign_hosts(host: str) -> None:
    with pytest.raises(StatusError, match="the Host header"):
        user_of_request(RestConfig(), LIST, {"Host": host}, None, 0)
