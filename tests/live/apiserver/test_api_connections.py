"""Connections that bring nothing: they end, and do not keep others out."""

from __future__ import annotations

import asyncio

import pytest
from verbs_api import new_api

from kdns.aio.apiserver import body
from kdns.aio.apiserver import server as rest
from kdns.aio.apiserver.authentication import RestConfig

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
    server = await rest.start(new_api(), RestConfig(port=0, idle_s=1.0))
    assert await answer_until_closed(server, sent) == b""
    await server.close()


async def test_a_connection_between_two_requests_ends() -> None:
    server = await rest.start(new_api(), RestConfig(port=0, idle_s=1.0))
    assert (await answer_until_closed(server, VERSION)).startswith(b"HTTP/1.1 200")
    await server.close()


async def test_a_body_that_does_not_come_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "READ_TIMEOUT_S", 0.2)
    server = await rest.start(new_api(), RestConfig(port=0))
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(UNFINISHED)
    async with asyncio.timeout(DEADLINE_S):
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    writer.close()
    await server.close()


async def test_far_too_many_connections_are_dropped_at_once() -> None:
    server = await rest.start(new_api(), RestConfig(port=0, connections_max=2))
    waiting = [await asyncio.open_connection(*server.address) for _ in range(4)]
    assert await answer_until_closed(server, b"") == b""
    for _, writer in waiting:
        writer.close()
    await server.close()
