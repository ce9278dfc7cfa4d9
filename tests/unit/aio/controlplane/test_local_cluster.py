"""A local cluster that cannot start leaves nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from web_deployment import cluster_config

from kdns.aio.apiserver.authentication import RestConfig
from kdns.aio.controlplane import local_cluster
from kdns.aio.controlplane.local_cluster import LocalCluster


async def test_a_failed_start_stops_the_server_and_closes_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one gets the data folder, and nobody listens where it did."""
    ports = []

    class Failing:
        def __init__(self, *_: object) -> None:
            ports.append(failed.address[1])
            raise RuntimeError("a defect")

    failed = LocalCluster(cluster_config(), RestConfig("127.0.0.1", 0), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(local_cluster, "ControllerManager", Failing)
        with pytest.raises(RuntimeError, match="a defect"):
            await failed.start()
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", ports[0])
    local = LocalCluster(cluster_config(), RestConfig("127.0.0.1", 0), tmp_path)
    await local.start()
    await local.stop()
