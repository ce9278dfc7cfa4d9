"""A cluster's listeners: the time that they get with its changes, and what is theirs alone."""

import time
from pathlib import Path

import pytest
from dns_chain import FakeWorld

from kdns.cluster.io.cluster import Cluster, Listener
from kdns.cluster.io.clusters import Clusters
from kdns.cluster.objects import Meta, Namespace
from kdns.cluster.source import ClusterSpec, Scope, Source
from kdns.errors import CorefileError
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.plugin import Kubernetes


def test_the_serial_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither with the clock, nor for the chain that a reload builds."""
    cluster = Cluster(ClusterSpec(Source(endpoint="http://127.0.0.1:9"), Scope((Namespace,))))
    serials = []
    first = Kubernetes(cluster.state, Options(), FakeWorld())
    cluster.listeners.append(Listener(first.changed))
    for number, clock_s in enumerate((2000.5, 2000.9, 1000.0, 1001.0, 2002.0, 3000.0, 2**32 + 7.0)):
        monkeypatch.setattr(time, "time", lambda now_s=clock_s: now_s)
        change = cluster.state.upsert(Namespace(Meta(f"n{number}")))
        assert change
        cluster.changed([change])
        serials.append(first.zones.serial)
    assert serials == [2000, 2000, 2001, 2002, 2003, 3000, 7]  # RFC 1982: 7 follows 2**32 - 1
    reloaded = Kubernetes(cluster.state, Options(), FakeWorld())
    assert (reloaded.zones.serial, reloaded.zones.soa("cluster.local.").rdata) == (
        7,
        first.zones.soa("cluster.local.").rdata,
    )


def test_the_longest_startup_timeout_is_that_of_the_blocks_in_use() -> None:
    clusters = Clusters()
    spec = ClusterSpec(Source(endpoint="http://127.0.0.1:9"), Scope((Namespace,)))
    old, new = (Listener(lambda *_: None, startup_timeout_s=timeout_s) for timeout_s in (3600.0, 5.0))
    for listeners in ([], [old], [old, new], [new], []):
        clusters.of(spec).listeners[:] = listeners
        assert clusters.startup_timeout_s == max((listener.startup_timeout_s for listener in listeners), default=0.0)


async def test_an_error_is_located_in_the_block_that_is_in_use(tmp_path: Path) -> None:
    """The cluster is that of the first block, which a reload has replaced."""
    clusters = Clusters()
    cluster = clusters.of(ClusterSpec(Source(kubeconfig=str(tmp_path / "none")), Scope((Namespace,))))
    old, new = (
        Listener(lambda *_: None, lambda error, name=name: CorefileError(name, 1, "", str(error)), 60.0)  # type: ignore[misc]
        for name in ("old", "new")
    )
    cluster.listeners += old, new
    cluster.listeners.remove(old)
    clusters.follow()
    with pytest.raises(CorefileError, match=r"^new:1: "):
        await clusters.wait()
    await clusters.stop()
