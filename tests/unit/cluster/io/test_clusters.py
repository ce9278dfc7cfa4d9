"""The time that a cluster's listeners get with its changes."""

from __future__ import annotations

import time

import pytest
from dns_chain import FakeSetup

from kdns.cluster.io.clusters import Cluster
from kdns.cluster.objects import Meta, Namespace
from kdns.cluster.source import ClusterSpec, Scope, Source
from kdns.plugins.kubernetes.options import Options
from kdns.plugins.kubernetes.plugin import Kubernetes


def test_the_serial_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither with the clock, nor for the chain that a reload builds."""
    cluster = Cluster(ClusterSpec(Source(endpoint="http://127.0.0.1:9"), Scope((Namespace,))))
    serials = []
    first = Kubernetes(cluster.state, Options(), FakeSetup())
    cluster.listeners.append(first.changed)
    for number, clock_s in enumerate((2000.5, 2000.9, 1000.0, 1001.0, 2002.0, 3000.0, 2**32 + 7.0)):
        monkeypatch.setattr(time, "time", lambda now_s=clock_s: now_s)
        change = cluster.state.upsert(Namespace(Meta(f"n{number}")))
        assert change
        cluster.changed([change])
        serials.append(first.zones.serial)
    assert serials == [2000, 2000, 2001, 2002, 2003, 3000, 7]  # RFC 1982: 7 follows 2**32 - 1
    reloaded = Kubernetes(cluster.state, Options(), FakeSetup())
    assert (reloaded.zones.serial, reloaded.zones.soa("cluster.local.").rdata) == (
        7,
        first.zones.soa("cluster.local.").rdata,
    )
