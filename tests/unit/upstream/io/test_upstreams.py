"""What the server blocks of a process share, and what a scrape is told of it."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from fake_upstream import fake_server, query_of, respond_to, until

from kdns.upstream.io import udp, upstreams
from kdns.upstream.io.metrics import gauges
from kdns.upstream.io.upstreams import Upstreams
from kdns.upstream.upstream import UpstreamError

QUERY = query_of("www.example.com")


@pytest.fixture
async def shared() -> AsyncIterator[Upstreams]:
    made = Upstreams()
    yield made
    made.close()


async def test_equal_specifications_share_sockets_until_nobody_has_them(shared: Upstreams) -> None:
    async with fake_server() as server:
        first, second = shared.of(server.spec), shared.of(server.spec)
        other = shared.of(replace(server.spec, source_address="127.0.0.1"))
        for upstream in (first, second, first, second, other):
            assert await upstream.exchange(QUERY, "tcp", 5.0) == respond_to(QUERY)
        assert len(server.connections) == 2
        first.close()
        first.close()
        with pytest.raises(UpstreamError, match="no longer used"):
            await first.exchange(QUERY, "tcp", 5.0)
        assert await second.exchange(QUERY, "tcp", 5.0) == respond_to(QUERY)
        assert len(server.connections) == 2
        second.close()
        third = shared.of(server.spec)
        assert await third.exchange(QUERY, "tcp", 5.0) == respond_to(QUERY)
        assert len(server.connections) == 3
        shared.close()
        third.close()


async def test_what_is_exposed(shared: Upstreams) -> None:
    async with fake_server(lambda query: [query]) as server:
        upstream = shared.of(server.spec)
        with pytest.raises(UpstreamError):
            await upstream.exchange(QUERY, "udp", 0.1)
        for _ in range(3):
            await upstream.exchange(QUERY, "tcp", 5.0)
        upstream.close()
        shared.of(server.spec)
        to = str(server.spec.address)
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for family in gauges(shared).collect()
            for sample in family.samples
        }
        assert samples == {
            ("coredns_proxy_conn_cache_hits_total", "forward", to, "tcp"): 2,
            ("coredns_proxy_conn_cache_misses_total", "forward", to, "tcp"): 1,
            ("coredns_proxy_conn_cache_hits_total", "forward", to, "udp"): 0,
            ("coredns_proxy_conn_cache_misses_total", "forward", to, "udp"): 1,
            ("kdns_upstream_ignored_messages_total", to, "udp", "malformed"): 1,
            ("kdns_upstream_exchanges",): 0,
            ("kdns_upstream_rejected_exchanges_total",): 0,
        }


async def test_idle_sockets_are_closed_in_time(shared: Upstreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstreams, "TIDY_S", 0.01)
    monkeypatch.setattr(udp, "SOCKET_S", 0.05)
    async with fake_server() as server:
        upstream = shared.of(server.spec)
        for exchange in [upstream.exchange(QUERY, "udp", 5.0) for _ in range(20)]:
            await exchange
        await until(lambda: shared.exchanges is not None and not shared.exchanges.descriptors)


def test_nothing_is_exposed_of_no_upstream() -> None:
    assert {sample.value for family in gauges(Upstreams()).collect() for sample in family.samples} == {0}
