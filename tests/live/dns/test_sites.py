"""HTTP sites beside the DNS server: where they listen, and what they log."""

import asyncio

import pytest
from structlog.testing import capture_logs

from kdns.errors import ListenError
from kdns.runtime.connections import ConnectionKind, Connections
from kdns.runtime.http import server
from kdns.runtime.http.sites import ANY_PATH, plain_page, start_site

DEADLINE_S = 60.0
PAGES = {"/health": plain_page(lambda: (200, "OK"))}
GET = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


async def test_a_site_tells_its_log_of_bytes_that_are_no_http() -> None:
    site = await start_site("127.0.0.1", 0, {}, Connections(ConnectionKind.SITES))
    with capture_logs() as logs:
        reader, writer = await asyncio.open_connection(*site.address)
        writer.write(b"GET / HTTP/9.9 x\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
        await site.close()
    assert [(log["event"], log["log_level"]) for log in logs] == [("malformed request", "info")]


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("203.0.113.1", r"cannot listen on 203\.0\.113\.1:9153: Cannot assign requested address"),
        ("2001:db8::1", r"cannot listen on \[2001:db8::1\]:9153: (Cannot assign requested|Address family not supp).*"),
        ("no-such-host.invalid", r"cannot listen on no-such-host\.invalid:9153: [A-Z](?!nknown error).*"),
    ],
)
async def test_a_site_that_cannot_listen_says_why(host: str, message: str) -> None:
    with pytest.raises(ListenError, match=f"^{message}$"):
        await start_site(host, 9153, {}, Connections(ConnectionKind.SITES))


async def answer(address: tuple[str, int], sent: bytes) -> bytes:
    """The first line that comes, b"" where the connection ends without one."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await reader.readline()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (GET, 200),
        (GET.replace(b"GET", b"HEAD"), 200),
        (GET.replace(b"GET", b"POST"), 405),
        (GET.replace(b"/health", b"/else"), 404),
        (GET.replace(b"Host", b"Content-Length: 0\r\nHost"), 200),
        (GET.replace(b"Host", b"Content-Length: 1000000\r\nContent-Encoding: gzip\r\nHost"), 413),
        (GET.replace(b"Host", b"Transfer-Encoding: chunked\r\nHost") + b"1\r\nx\r\n0\r\n\r\n", 413),
    ],
)
async def test_a_site_reads_no_bodies(sent: bytes, status: int) -> None:
    site = await start_site("127.0.0.1", 0, PAGES, Connections(ConnectionKind.SITES))
    assert (await answer(site.address, sent)).split()[1] == str(status).encode()
    await site.close()


async def test_a_site_with_a_page_for_any_path() -> None:
    site = await start_site(
        "127.0.0.1", 0, PAGES | {ANY_PATH: plain_page(lambda: (503, ""))}, Connections(ConnectionKind.SITES)
    )
    assert [
        (await answer(site.address, GET.replace(b"/health", path))).split()[1] for path in (b"/health", b"/a/b")
    ] == [b"200", b"503"]
    await site.close()


async def test_idle_connections_give_way_to_new_ones() -> None:
    connections = Connections(ConnectionKind.SITES, 3)
    site = await start_site("127.0.0.1", 0, PAGES, connections)
    async with asyncio.timeout(DEADLINE_S):
        idle = [await asyncio.open_connection(*site.address) for _ in range(20)]
        for _, writer in idle[-2:]:
            writer.write(GET)
        assert (await answer(site.address, GET)).split()[1] == b"200"
        ended = [await reader.read() for reader, _ in idle[:17]]
    assert ended == [b""] * 17
    for _, writer in idle:
        writer.close()
    await site.close()
    assert len(connections) == 0


@pytest.mark.parametrize("sent", [b"", GET[:-2]])
async def test_a_connection_without_a_whole_request_ends(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FIRST_REQUEST_S", 0.05)
    site = await start_site("127.0.0.1", 0, PAGES, Connections(ConnectionKind.SITES))
    assert await answer(site.address, sent) == b""
    await site.close()


async def test_a_connection_has_one_request() -> None:
    site = await start_site("127.0.0.1", 0, PAGES, Connections(ConnectionKind.SITES))
    reader, writer = await asyncio.open_connection(*site.address)
    writer.write(GET * 100)
    async with asyncio.timeout(DEADLINE_S):
        received = await reader.read()
    assert received.count(b"HTTP/1.1 200 OK") == received.count(b"Connection: close") == 1
    writer.close()
    await site.close()


async def test_a_head_is_not_endless() -> None:
    site = await start_site("127.0.0.1", 0, PAGES, Connections(ConnectionKind.SITES))
    endless = GET[:-2] + b"".join(b"X-%d: %s\r\n" % (number, b"a" * 8000) for number in range(6))
    assert await answer(site.address, endless) == b""
    assert (await answer(site.address, GET[:-2] + b"X: %s\r\n\r\n" % (b"a" * 8000))).split()[1] == b"200"
    await site.close()
