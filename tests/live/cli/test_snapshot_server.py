"""The cluster as an API server lists it: kdns's own, and one that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from web_deployment import DEPLOYMENT, cluster_config

from kdns.apps.sources.snapshot import chosen_node, snapshot_of
from kdns.apps.sources.source import ObjectSource
from kdns.cluster.objects import Node, Service
from kdns.cluster.watch import RESOURCES
from kdns.controlplane.io.local_cluster import LocalCluster
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.errors import ApiServerError

SHOP = """\
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
"""
EXPORTED = {
    "services": "/api/v1/services",
    "slices": "/apis/discovery.k8s.io/v1/endpointslices",
    "nodes": "/api/v1/nodes",
}


def told(objects: Mapping[Any, Service | Node]) -> dict[Any, Any]:
    """What counts of objects: following a manifest leaves annotations."""
    return {key: (each.spec, each.status) for key, each in objects.items()}


async def test_an_export_of_a_cluster_is_the_cluster(tmp_path: Path) -> None:
    """Without Namespaces and Pods; the servers' own slices lead to loopback addresses, which nobody else's may."""
    local = LocalCluster(cluster_config(), RestConfig("127.0.0.1", 0))
    await local.start()
    try:
        async with asyncio.timeout(60), ClientSession() as session:
            (tmp_path / "a").mkdir()
            (tmp_path / "a" / "web.yaml").write_text(
                DEPLOYMENT.replace("{name: web}", "{name: web, namespace: shop}") + SHOP
            )
            await local.apply([tmp_path / "a"], {}, lambda problem: pytest.fail(str(problem)))
            url = f"http://127.0.0.1:{local.address[1]}"
            for name, path in EXPORTED.items():
                async with session.get(url + path) as response:
                    (tmp_path / f"{name}.json").write_text(await response.text())
            asked = await snapshot_of(ObjectSource(server=url), pytest.fail)
    finally:
        await local.stop()
    files = tuple(tmp_path / f"{name}.json" for name in EXPORTED)
    read = await snapshot_of(ObjectSource(files, cluster=cluster_config()), pytest.fail)
    assert told(read.state.services) == told(asked.state.services)
    assert read.state.slices.keys() == asked.state.slices.keys()
    assert all(each.endpoints == asked.state.slices[key].endpoints for key, each in read.state.slices.items())
    assert len(asked.state.slices_by_service["shop", "web"]) == 1
    assert ("default", "kubernetes") in asked.state.slices_by_service
    assert told(read.state.nodes) == told(asked.state.nodes)
    assert (read.service_cidrs, read.node_names) == (asked.service_cidrs, asked.node_names)


OBJECTS: dict[str, list[dict[str, Any]]] = {
    "/api/v1/services": [
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterIP": f"10.0.0.{at}", "ports": [{"port": 80}]},
        }
        for at, name in enumerate(("a", "b"), 1)
    ],
    "/apis/discovery.k8s.io/v1/endpointslices": [
        {
            "metadata": {"name": "a-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "a"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.1.0.1"]}],
            "ports": [{"name": "", "port": 8080}],
        },
        {"metadata": {"name": "odd", "namespace": "default"}, "endpoints": 7},
    ],
    "/api/v1/nodes": [
        {"metadata": {"name": "n1"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}
    ],
    "/apis/networking.k8s.io/v1/servicecidrs": [
        {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.0.0.0/24"]}}
    ],
}

LIST_TYPES = {
    each.path: {"kind": f"{each.kind.__name__}List", "apiVersion": each.api_version} for each in RESOURCES.values()
}


async def one_at_a_time(request: web.Request) -> web.Response:
    """Every list in pages of one object."""
    items, at = OBJECTS[request.path], int(request.query.get("continue", "0"))
    if request.path.endswith("servicecidrs"):
        return web.json_response(LIST_TYPES[request.path] | {"metadata": {}, "items": items})
    more = str(at + 1) if at + 1 < len(items) else ""
    metadata = {"resourceVersion": "1", "continue": more}
    return web.json_response(LIST_TYPES[request.path] | {"items": items[at : at + 1], "metadata": metadata})


async def old(request: web.Request) -> web.Response:
    if request.path.endswith("servicecidrs"):
        return web.json_response({"kind": "Status", "code": 404, "message": "no"}, status=404)
    return await one_at_a_time(request)


async def strict(request: web.Request) -> web.Response:
    if request.path.endswith("servicecidrs"):
        return web.json_response({"kind": "Status", "code": 403, "message": "you may not"}, status=403)
    return await one_at_a_time(request)


async def no_kubernetes(_: web.Request) -> web.Response:
    return web.Response(text="<html>")


@pytest.mark.parametrize(
    ("handler", "cidrs", "warned", "error"),
    [
        (one_at_a_time, ("10.0.0.0/24",), 1, ""),
        (old, (), 1, ""),
        (strict, (), 2, ""),
        (no_kubernetes, (), 0, "/api/v1/services: not the answer of a Kubernetes API"),
    ],
)
async def test_from_a_server(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], cidrs: tuple[str, ...], warned: int, error: str
) -> None:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    warnings: list[str] = []
    try:
        async with asyncio.timeout(60):
            source = ObjectSource(server=f"http://127.0.0.1:{runner.addresses[0][1]}")
            asked = snapshot_of(source, warnings.append)
            if error:
                with pytest.raises(ApiServerError, match=error):
                    await asked
                return
            made = await asked
    finally:
        await runner.cleanup()
    assert sorted(made.state.services) == [("default", "a"), ("default", "b")]
    assert (made.service_cidrs, made.node_names, len(warnings)) == (cidrs, ("n1",), warned)
    assert "endpointslices default/odd is left out" in warnings[0]
    assert chosen_node(made, "", pytest.fail) == "n1"
