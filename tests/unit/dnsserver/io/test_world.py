"""The world of a server block's directives: what begins and ends with the block, and what continues after a reload."""

import asyncio
from pathlib import Path

import pytest
from configured import configured
from structlog.testing import capture_logs

from kdns.cluster.io.clusters import Clusters
from kdns.cluster.source import ClusterSpec, Scope, Source
from kdns.dnsserver.io.world import MAX_FILES, BlockWorld, SharedResources
from kdns.errors import CorefileError
from kdns.net import HostPort
from kdns.plugins.sources.kubernetes.plugin import Kubernetes
from kdns.serverblocks.directive import UnreadableFileError
from kdns.upstream.upstream import UpstreamSpec


def world_of(stanzas: str = "", shared: SharedResources | None = None) -> BlockWorld:
    (config,) = configured(f". {{\n{stanzas}\n}}\n")
    return BlockWorld(config, shared or SharedResources(Clusters()))


async def test_the_addresses_of_the_block_are_known_when_its_directives_are_built() -> None:
    world = world_of("bind 127.0.0.1\nkubernetes {\nendpoint http://127.0.0.1:9\n}")
    world.build()
    (plugin,) = world.plugins()
    assert isinstance(plugin, Kubernetes)
    assert plugin.zones.options.own_addresses == world.own_addresses == (b"\x7f\0\0\1",)
    world.abandon()


async def test_coroutines_run_from_the_start_of_the_block_to_its_end() -> None:
    world, events = world_of(), list[str]()

    async def work() -> None:
        events.append("begins")
        try:
            await asyncio.Event().wait()
        finally:
            events.append("is cancelled")

    world.spawn(work)
    world.on_stop(lambda: events.append("the block stops"))
    await asyncio.sleep(0)
    assert events == []
    world.start()
    await asyncio.sleep(0)
    await world.stop()
    world.spawn(work)
    await asyncio.sleep(0)
    assert events == ["begins", "the block stops", "is cancelled"]


def test_counters_and_histograms_continue_after_a_reload() -> None:
    shared = SharedResources(Clusters())
    for world in (world_of(shared=shared), world_of(shared=shared)):
        world.counters("kdns_count", "A count.", ("name",)).tally("a").count += 1
        world.histograms("kdns_time", "A time.", ("name",), (1.0,)).histogram("a").add(0.5)
    assert shared.counters["kdns_count"].samples() == [(("a",), 2)]
    assert [histogram.counts for _, histogram in shared.histograms["kdns_time"].samples()] == [[2, 0]]


async def test_clusters_and_upstreams_are_released_with_the_block() -> None:
    shared = SharedResources(Clusters())
    old, new = world_of(shared=shared), world_of(shared=shared)
    spec = ClusterSpec(Source(endpoint="http://127.0.0.1:9"), Scope())
    upstream = UpstreamSpec(HostPort("127.0.0.1", 53))
    for world in (old, new):
        world.cluster(spec, lambda _changes, _changed_s: None, startup_timeout_s=1.0)
        world.upstream(upstream)
    listeners = shared.clusters.of(spec).listeners
    assert len(listeners) == 2
    old.abandon()
    assert len(listeners) == 1
    new.abandon()
    assert listeners == []
    shared.upstreams.close()


@pytest.mark.parametrize(("stanzas", "level"), [("debug", "info"), ("errors", "debug")])
def test_debug_lines_are_those_of_blocks_with_debug(stanzas: str, level: str) -> None:
    with capture_logs() as lines:
        world_of(stanzas).log("debug", "event", fact=1)
    assert [(line["log_level"], line["event"], line["fact"]) for line in lines] == [(level, "event", 1)]


async def test_files_are_read_in_a_thread(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xe9")
    (tmp_path / "text").write_text("two\r\nlines", encoding="utf-8", newline="")
    world = world_of(f"root {tmp_path}")
    assert world.path("text") == str(tmp_path / "text")
    assert await world.in_thread(lambda: world.read_text(world.path("text"))) == "two\r\nlines"
    assert world.files_below(str(tmp_path)) == (world.path("latin"), world.path("text"))
    for path in ("absent", "."):
        with pytest.raises(UnreadableFileError, match="cannot be read"):
            world.read_text(world.path(path))
    with pytest.raises(UnreadableFileError, match="cannot be read"):
        world.files_below(world.path("absent"))
    with pytest.raises(CorefileError, match="cannot be read") as caught:
        world.read_text(world.path("latin"))
    assert not isinstance(caught.value, UnreadableFileError)


def test_a_directory_has_a_limited_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = (tmp_path / str(number) for number in range(MAX_FILES + 1))
    monkeypatch.setattr("kdns.dnsserver.io.world.files_below", lambda _directory, _failed: files)
    with pytest.raises(CorefileError, match="has more than 10,000 files"):
        world_of().files_below(str(tmp_path))
