"""The cluster as an API server lists it: kdns's own, and one that the test plays."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from fake_api import Json, answering
from web_deployment import DEPLOYMENT, cluster_config

from kdns.apps.sources.snapshot import chosen_node, snapshot_of
from kdns.apps.sources.source import ObjectSource
from kdns.cluster.objects import EndpointSlice, Node, Object, Service, ServiceCIDR
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


def listed(kind: type[Object], *items: Json, more: str = "") -> Json:
    resource, metadata = RESOURCES[kind], {"resourceVersion": "1", "continue": more}
    types = {"kind": f"{kind.__name__}List", "apiVersion": resource.api_version}
    return {**types, "metadata": metadata, "items": [*items]}


def service(name: str) -> Json:
    spec = {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


SLICE = {
    "metadata": {"name": "a-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "a"}},
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.1.0.1"]}],
    "ports": [{"name": "", "port": 8080}],
}
ODD = {"metadata": {"name": "odd", "namespace": "default"}, "endpoints": 7}
NODE = {"metadata": {"name": "n1"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}
CIDR = {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.0.0.0/24"]}}
SERVICES, CIDRS = EXPORTED["services"], RESOURCES[ServiceCIDR].path
IN_PAGES: dict[str, Json | int | str] = {
    SERVICES: listed(Service, service("a"), more="b"),
    f"{SERVICES} b": listed(Service, service("b")),
    EXPORTED["slices"]: listed(EndpointSlice, SLICE, ODD),
    EXPORTED["nodes"]: listed(Node, NODE),
    CIDRS: listed(ServiceCIDR, CIDR),
}


@pytest.mark.parametrize(
    ("changed", "cidrs", "warned", "error"),
    [
        ({}, ("10.0.0.0/24",), 1, ""),
        ({CIDRS: 404}, (), 1, ""),
        ({CIDRS: 403}, (), 2, ""),
        ({SERVICES: "<html>"}, (), 0, "/api/v1/services: not the answer of a Kubernetes API"),
    ],
)
async def test_from_a_server(
    changed: dict[str, Json | int | str], cidrs: tuple[str, ...], warned: int, error: str
) -> None:
    warnings: list[str] = []
    async with asyncio.timeout(60), answering(IN_PAGES | changed) as url:
        asked = snapshot_of(ObjectSource(server=url), warnings.append)
        if error:
            with pytest.raises(ApiServerError, match=error):
                await asked
            return
        snapshot = await asked
    assert sorted(snapshot.state.services) == [("default", "a"), ("default", "b")]
    assert (snapshot.service_cidrs, snapshot.node_names, len(warnings)) == (cidrs, ("n1",), warned)
    assert "endpointslices default/odd is left out" in warnings[0]
    assert chosen_node(snapshot, "", pytest.fail) == "n1"
