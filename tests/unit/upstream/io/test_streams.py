"""Exchanges over TCP and TLS with servers on loopback: connections that are kept, and what is said of bad ones."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from traceback import extract_tb
from typing import Any

import pytest
from fake_api_certs import authority
from fake_upstream import Silent, answer, fake_server, query_of, respond_to, server_tls, trusting, until, upstream_of

from kdns.upstream.framing import PIPELINED
from kdns.upstream.io import streams
from kdns.upstream.io.upstreams import SocketUpstream
from kdns.upstream.upstream import Scheme, UpstreamError, UpstreamTimeoutError, UpstreamUnreachableError

QUERY = query_of("www.example.com", payload_bytes=1232)
NAME = "dns.example"


async def asked(upstream: SocketUpstream, timeout_s: float = 60.0) -> bytes:
    return await upstream.exchange(QUERY, "tcp", timeout_s)


async def test_one_connection_is_used_again() -> None:
    async with fake_server() as server, upstream_of(server.spec) as upstream:
        for _ in range(20):
            assert await asked(upstream) == respond_to(QUERY)
        assert len(server.connections) == 1
        assert len({query[:2] for query in server.streamed}) > 15
        assert (upstream.streams.counts.opened, upstream.streams.counts.reused) == (1, 19)


async def test_many_at_once_share_a_few_connections() -> None:
    async with fake_server() as server, upstream_of(server.spec) as upstream:
        assert {*await asyncio.gather(*(asked(upstream) for _ in range(1000)))} == {respond_to(QUERY)}
        assert len(server.connections) == streams.CONNECTIONS // 2
        assert await asked(upstream) == respond_to(QUERY)
        assert len(server.connections) == streams.CONNECTIONS // 2


async def test_more_than_connections_may_have_fail_at_once() -> None:
    async with fake_server(tcp=Silent()) as server, upstream_of(server.spec) as upstream:
        tasks = [asyncio.create_task(asked(upstream)) for _ in range(streams.CONNECTIONS // 2 * PIPELINED + 1)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert [str(task.exception()) for task in done] == ["8 connections wait for as many responses as they may"]
        upstream.close()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        frames = [len(extract_tb(error.__traceback__)) for error in errors if isinstance(error, UpstreamError)]
        assert max(frames) < 10, "queries that share an error do not have each other's frames"


@pytest.mark.parametrize("is_serial", [False, True])
async def test_queries_of_others_find_connections_of_their_own(*, is_serial: bool) -> None:
    """Three clients fill what they may with names whose servers are silent; another one's names are answered."""

    def known_only(query: bytes) -> list[bytes]:
        return [answer(query)] if b"silent" not in query.lower() else []

    silent = query_of("silent.example.")
    async with fake_server(tcp=known_only) as server, upstream_of(server.spec) as upstream:
        upstream.streams.pipelined = 1 if is_serial else PIPELINED
        clients = [f"192.0.2.{number}" for number in range(1, 4)]
        tasks = [
            asyncio.ensure_future(upstream.exchange(silent, "tcp", 60.0, client))
            for _ in range(700)
            for client in clients
        ]
        await asyncio.sleep(0)
        for number in range(50):
            assert await upstream.exchange(QUERY, "tcp", 60.0, "198.51.100.1") == respond_to(QUERY), number
        upstream.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_responses_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CONNECTIONS", 1)
    held: list[bytes] = []

    def backwards(query: bytes) -> list[bytes]:
        held.append(query)
        return [answer(packet) for packet in reversed(held)] if len(held) == 10 else []

    async with fake_server(tcp=backwards) as server, upstream_of(server.spec) as upstream:
        assert {*await asyncio.gather(*(asked(upstream) for _ in range(10)))} == {respond_to(QUERY)}


async def test_a_connection_that_the_peer_has_closed_is_replaced() -> None:
    async with fake_server() as server, upstream_of(server.spec) as upstream:
        for number in range(1, 4):
            assert await asked(upstream) == respond_to(QUERY)
            assert len(server.connections) == number
            server.connections[-1].write_eof()
            await until(lambda: not len(upstream.streams.idle))


async def test_a_query_on_a_connection_that_closes_meanwhile_is_sent_once_more() -> None:
    closing: list[bytes] = []

    def close(query: bytes) -> list[bytes]:
        closing.append(query)
        server.connections[-1].transport.abort()
        return []

    async with fake_server() as server, upstream_of(server.spec) as upstream:
        await asked(upstream)
        server.tcp = lambda query: close(query) if not closing else [answer(query)]
        assert await asked(upstream) == respond_to(QUERY)
        assert (len(closing), len(server.connections)) == (1, 2)
        server.tcp = close
        with pytest.raises(UpstreamError, match="before the response came"):
            await asked(upstream)
        assert len(closing) == 3, "once more and not again"
        with pytest.raises(UpstreamError, match="before the response came"):
            await asked(upstream)
        assert len(closing) == 4, "a new connection is not tried twice"


async def test_an_upstream_that_closes_behind_each_response_gets_one_query_at_a_time() -> None:
    async with fake_server(closes=True) as server, upstream_of(server.spec) as upstream:
        await asyncio.gather(*(asked(upstream) for _ in range(40)), return_exceptions=True)
        assert upstream.streams.pipelined == 1
        assert {*await asyncio.gather(*(asked(upstream) for _ in range(40)))} == {respond_to(QUERY)}


@pytest.mark.parametrize("tidies", [True, False])
@pytest.mark.parametrize(
    ("changes", "age_s", "idle_s", "kept"),
    [
        ({}, 0, 0, 5),
        ({}, 10_000, 9, 5),
        ({}, 10_000, 10, 0),
        ({"expire_s": 20.0}, 19, 19, 5),
        ({"max_age_s": 60.0}, 59, 0, 5),
        ({"max_age_s": 60.0}, 60, 0, 0),
        ({"max_idle": 0}, 0, 0, 0),
        ({"max_idle": 2}, 0, 0, 2),
    ],
)
async def test_which_connections_are_used_again(
    changes: dict[str, Any], age_s: float, idle_s: float, kept: int, *, tidies: bool
) -> None:
    async with fake_server() as server, upstream_of(replace(server.spec, **changes)) as upstream:
        await asyncio.gather(*(asked(upstream) for _ in range(5)))
        for connection in upstream.streams.idle:
            connection.opened_s, connection.idle_since_s = connection.opened_s - age_s, connection.idle_since_s - idle_s
        if tidies:
            upstream.tidy(asyncio.get_running_loop().time())
            assert len(upstream.streams.idle) == kept
        await asyncio.gather(*(asked(upstream) for _ in range(5)))
        assert len(server.connections) == 10 - kept


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda query: bytes((query[0] ^ 1,)) + answer(query)[1:], "to no query of this connection"),
        (lambda query: answer(query).replace(b"example", b"exempli"), "about another question"),
        (lambda query: answer(query)[:4] + bytes(8), "about another question"),
        (lambda query: query, "is not a response"),
        (lambda query: query[:2], "is not a response"),
    ],
    ids=["id", "question", "no question", "a query", "short"],
)
async def test_what_does_not_answer_is_an_error(change: Callable[[bytes], bytes], reason: str) -> None:
    async with fake_server(tcp=lambda query: [change(query)]) as server, upstream_of(server.spec) as upstream:
        with pytest.raises(UpstreamError, match=reason):
            await asked(upstream)
        assert upstream.streams.counts.ignored.total() == 1


async def test_timeouts() -> None:
    async with fake_server(tcp=lambda _: []) as server, upstream_of(server.spec) as upstream:
        with pytest.raises(UpstreamTimeoutError, match=r"timed out after 0\.05 s"):
            await asked(upstream, 0.05)
        server.tcp = lambda query: [answer(query)]
        assert await asked(upstream) == respond_to(QUERY)
        assert len(server.connections) == 2, "the silent one is not used again"


async def test_nobody_listens() -> None:
    async with fake_server() as server:
        pass
    async with upstream_of(server.spec) as upstream:
        with pytest.raises(UpstreamUnreachableError, match="connection refused"):
            await asked(upstream)


async def test_closing_fails_what_is_pending() -> None:
    async with fake_server(tcp=lambda _: []) as server, upstream_of(server.spec) as upstream:
        tasks = [asyncio.create_task(asked(upstream, 60.0)) for _ in range(3)]
        await until(lambda: len(server.streamed) == 3)
        tasks[0].cancel()
        await asyncio.wait(tasks[:1])
        tasks.append(asyncio.create_task(asked(upstream, 60.0)))  # its connection is not open yet
        await asyncio.sleep(0)
        upstream.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(result) for result in results] == ["", *["the upstream is no longer used"] * 3]


async def cancelled(upstream: SocketUpstream, count: int, are_sent: Callable[[], bool]) -> None:
    """Queries of one client that are given up after `are_sent`."""
    tasks = [asyncio.ensure_future(upstream.exchange(QUERY, "tcp", 60.0, "192.0.2.1")) for _ in range(count)]
    await until(are_sent)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize("scheme", ["dns", "tls"])
async def test_a_cancelled_query_leaves_its_connection(tmp_path: Path, scheme: Scheme) -> None:
    """Its late response is dropped, and 100 cancelled queries open no further connection."""
    ca, held = authority("ca"), list[bytes]()

    def late(query: bytes) -> list[bytes]:
        held.append(query)
        return []

    tls = server_tls(ca, tmp_path) if scheme == "tls" else None
    async with fake_server(tcp=late, tls=tls) as server:
        trust = trusting(ca, tmp_path) if tls else server.spec.tls
        async with upstream_of(replace(server.spec, scheme=scheme, tls=trust)) as upstream:
            for number in range(1, 11):
                await cancelled(upstream, 10, lambda number=number: len(held) == 10 * number)  # type: ignore[misc]
            opened = len(server.connections)
            assert opened <= streams.CONNECTIONS // 2
            server.tcp = lambda query: [answer(query)]
            assert await asked(upstream) == respond_to(QUERY)
            assert len(server.connections) <= opened + 1
            assert len(upstream.streams.exchanges) == 0


async def test_the_late_response_to_a_cancelled_query_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CONNECTIONS", 2)
    held: list[bytes] = []

    def both(query: bytes) -> list[bytes]:
        held.append(query)
        return [answer(packet) for packet in held] if len(held) == 2 else []

    async with fake_server(tcp=both) as server, upstream_of(server.spec) as upstream:
        await cancelled(upstream, 1, lambda: len(held) == 1)
        assert await upstream.exchange(QUERY, "tcp", 60.0, "192.0.2.1") == respond_to(QUERY)
        assert len(server.connections) == 1
        assert upstream.streams.counts.ignored == {"late": 1}
        await until(lambda: len(upstream.streams.idle) == 1)


async def test_queries_that_are_cancelled_before_the_connection_is_open_leave_it_idle() -> None:
    async with fake_server() as server, upstream_of(server.spec) as upstream:
        for _ in range(20):
            await cancelled(upstream, 5, lambda: upstream.streams.counts.opened > 0)
        await until(lambda: len(upstream.streams.idle) > 0)
        assert await asked(upstream) == respond_to(QUERY)
        assert len(server.connections) <= streams.CONNECTIONS // 2


async def test_a_connection_whose_cancelled_queries_get_no_response_in_time_is_closed() -> None:
    async with fake_server(tcp=Silent()) as server, upstream_of(server.spec) as upstream:
        await cancelled(upstream, 1, lambda: len(server.streamed) == 1)
        upstream.tidy(asyncio.get_running_loop().time() + 59)
        assert len(upstream.streams._busy) == 1  # noqa: SLF001 - nothing public tells of a connection that waits
        upstream.tidy(asyncio.get_running_loop().time() + 61)
        assert not upstream.streams._busy  # noqa: SLF001 - see above
