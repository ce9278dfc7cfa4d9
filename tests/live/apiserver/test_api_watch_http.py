"""Watches over a real socket: long initial lists, clients that read slowly or not, many that watch alike."""

import asyncio
import json
import socket

import pytest
from rest_client import SERVICES, TABLE, Client, service
from structlog.testing import capture_logs

from kdns.controlplane.apimachinery.kinds import SERVICE, Json
from kdns.controlplane.server import representation
from kdns.controlplane.server.io import verbs
from kdns.controlplane.server.io import watch as rest_watch
from kdns.controlplane.server.registry import Request

DEADLINE_S = 60.0
WATCH = f"GET {SERVICES}?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def large(name: str, size: int) -> Json:
    return service(name, annotations={"note": "x" * size})


async def unread(client: Client, sent: bytes) -> socket.socket:
    """A request whose client reads nothing."""
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(reader, client.server.address)
    await loop.sock_sendall(reader, sent)
    return reader


async def test_a_long_initial_list_comes_in_pieces(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_watch, "_PIECE_BYTES", 3000)
    for number in range(100):
        client.api.create(Request(SERVICE, "default"), large(f"s{number:03}", 1000))
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with asyncio.timeout(DEADLINE_S), client.session.get(f"{SERVICES}?{query}") as response:
        lines = [json.loads(await response.content.readline())]
        client.api.create(Request(SERVICE, "default"), service("late"))
        while len(lines) < 102:
            lines.append(json.loads(await response.content.readline()))
    told = [(line["type"], line["object"]["metadata"].get("name", "")) for line in lines]
    assert told[:100] == [("ADDED", f"s{number:03}") for number in range(100)]
    assert sorted(told[100:102]) == [("ADDED", "late"), ("BOOKMARK", "")]
    bookmark = next(line for line in lines if line["type"] == "BOOKMARK")
    at = lines.index(bookmark)
    seen = {int(line["object"]["metadata"]["resourceVersion"]) for line in lines[:at]}
    missed = {int(line["object"]["metadata"]["resourceVersion"]) for line in lines[at + 1 :]}
    revision = int(bookmark["object"]["metadata"]["resourceVersion"])
    assert max(seen) <= revision
    assert not [each for each in missed if each < revision], "a bookmark comes after what it covers"


async def test_a_client_that_reads_nothing_is_cut_off_and_others_are_not(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_watch, "_STALLED_S", 1.0)
    slow = await unread(client, WATCH)
    async with asyncio.timeout(DEADLINE_S):
        while not client.server.watching:  # noqa: ASYNC110 - the server offers a count, not an event
            await asyncio.sleep(0.01)
    async with asyncio.timeout(DEADLINE_S):
        reader = await client.session.get(f"{SERVICES}?watch=1")
        for number in range(100):
            client.api.create(Request(SERVICE, "default"), large(f"s{number}", 100_000))
            assert (await reader.content.readuntil(b"\n")).startswith(b'{"type":"ADDED"')
        while client.server.watching > 1:  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.01)
        reader.close()
    slow.close()


async def test_lists_that_nobody_reads_are_bounded_together(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):  # more than the kernel's buffers take
        client.api.create(Request(SERVICE, "default"), large(f"s{number}", 200_000))
    async with asyncio.timeout(DEADLINE_S):

        async def until(status: int) -> bytes:
            while True:
                async with client.session.get(SERVICES) as response:
                    body: bytes = await response.read()
                if response.status == status:
                    return body
                await asyncio.sleep(0.01)

        whole = await until(200)
        monkeypatch.setattr(verbs, "UNSENT_BYTES_MAX", len(whole))
        slow = await unread(client, WATCH.replace(b"?watch=1", b""))
        assert json.loads(await until(429))["details"] == {"retryAfterSeconds": 1}
        slow.close()
        assert await until(200) == whole


async def test_tables_are_made_once_for_all_who_watch_alike(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    line = representation.Renderer.line

    def counted(self: representation.Renderer, event_type: str, obj: Json, now_s: float, *, first: bool) -> bytes:
        made.append(event_type)
        return line(self, event_type, obj, now_s, first=first)

    monkeypatch.setattr(representation.Renderer, "line", counted)
    async with asyncio.timeout(DEADLINE_S):
        watches = [await client.session.get(f"{SERVICES}?watch=1", headers={"Accept": TABLE}) for _ in range(3)]
        client.api.create(Request(SERVICE, "default"), service())
        lines = {await watch.content.readline() for watch in watches}
        for watch in watches:
            watch.close()
    assert len(lines) == 1
    assert made == ["ADDED"]


async def test_a_client_that_leaves_while_an_event_is_sent_is_no_error(client: Client) -> None:
    with capture_logs() as logs:
        slow = await unread(client, WATCH)
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.get_running_loop().sock_recv(slow, 500)
            (connection,) = client.server._server.connections  # noqa: SLF001 - the server's side of it
            client.api.create(Request(SERVICE, "default"), service())
            assert connection.transport
            connection.transport.close()  # as asyncio does at the client's EOF, with the event on its way
            while client.server.watching:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.01)
        slow.close()
    assert [(log["event"], log["log_level"]) for log in logs] == [("client disconnected", "debug")]
