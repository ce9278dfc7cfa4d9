"""A local cluster that cannot start leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
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


async def test_a_start_in_memory_goes_on_behind_every_revision_of_the_one_before() -> None:
    """A watch of the one before is told to start over (410), however soon it comes and whatever was written."""
    revision, code = "", 0
    for number in range(2):
        local = LocalCluster(cluster_config(), RestConfig("127.0.0.1", 0))
        await local.start()
        url = "http://{}:{}/api/v1/namespaces".format(*local.address)
        async with aiohttp.ClientSession() as client:
            for name in range(20):
                async with client.post(url, json={"metadata": {"name": f"n{name}"}}) as response:
                    assert response.status == 201
            watch = f"?watch=1&timeoutSeconds=1&resourceVersion={revision}" if number else ""
            async with client.get(url + watch) as response:
                found = json.loads(await response.content.readline() or "{}")
        if number:
            code = found.get("object", {}).get("code", 0)
        else:
            revision = found["metadata"]["resourceVersion"]
        await local.stop()
    assert code == 410
