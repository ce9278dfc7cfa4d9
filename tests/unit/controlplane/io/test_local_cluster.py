"""A local cluster that cannot start leaves nothing behind."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest
from web_deployment import cluster_config

from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, SERVICE, Kind
from kdns.controlplane.controllers.kubernetes_service import KEY
from kdns.controlplane.io import local_cluster
from kdns.controlplane.io.local_cluster import LocalCluster
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.registry import Request


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


@pytest.mark.parametrize(
    ("data", "first", "code"),
    [([None, None], "ERROR", 410), (["a", "b"], "ERROR", 410), (["a", "a"], "ADDED", 0)],
    ids=["in memory", "a new folder", "the same folder"],
)
async def test_a_watch_of_the_start_before(tmp_path: Path, data: list[str | None], first: str, code: int) -> None:
    """It resumes where the history is kept, else it starts over (410), however soon it comes and whatever is new."""
    revision, found = "", {}
    for number, folder in enumerate(data):
        local = LocalCluster(cluster_config(), RestConfig("127.0.0.1", 0), tmp_path / folder if folder else None)
        await local.start()
        url = "http://{}:{}/api/v1/namespaces".format(*local.address)
        async with aiohttp.ClientSession() as client:
            for name in range(20):
                async with client.post(url, json={"metadata": {"name": f"n{name}-{number}"}}) as response:
                    assert response.status == 201
            watch = f"?watch=1&timeoutSeconds=1&resourceVersion={revision}" if number else ""
            async with client.get(url + watch) as response:
                found = json.loads(await response.content.readline() or "{}")
        if not number:
            revision = found["metadata"]["resourceVersion"]
        await local.stop()
    assert found["type"] == first
    assert found["object"].get("code", 0) == code


@pytest.mark.parametrize("kind", [SERVICE, ENDPOINTS, ENDPOINT_SLICE], ids=lambda kind: str(kind.kind))
async def test_the_service_of_the_api_returns_when_it_is_deleted(kind: Kind) -> None:
    local = LocalCluster(cluster_config(), RestConfig("127.0.0.1", 0))
    await local.start()
    await local.finished()
    uid = local.api.get(Request(kind, *KEY))["metadata"]["uid"]
    local.api.delete(Request(kind, *KEY))
    async with asyncio.timeout(60):
        while not all(local.api.store.get(each, KEY) for each in (SERVICE, ENDPOINTS, ENDPOINT_SLICE)):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
    assert local.api.get(Request(kind, *KEY))["metadata"]["uid"] != uid
    await local.stop()
