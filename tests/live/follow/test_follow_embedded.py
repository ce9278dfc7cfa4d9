"""The same follower on kdns's own control plane."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network

from fake_api import held_port, until
from object_api import Api

from kdns.cluster.io.informer import FollowStats, follow
from kdns.cluster.objects import EndpointSlice, Namespace, Service
from kdns.cluster.source import Source
from kdns.cluster.state import State
from kdns.cluster.watch import Timing
from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, SERVICE, Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.server.io import server as rest
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.registry import Registry, Request

TIMING = Timing(page_objects=3, backoff_s=0.02, backoff_cap_s=0.05, idle_s=5.0)


def new_api() -> Registry:
    return Api(config=ClusterConfig(service_cidrs=(ip_network("10.96.0.0/16"),))).registry


def create_service(api: Registry, name: str) -> Json:
    spec = {"ports": [{"port": 80}]}
    return api.create(
        Request(SERVICE, "default"), {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
    ).copy()


def create_slice(api: Registry, name: str) -> None:
    labels = {"kubernetes.io/service-name": name}
    api.create(
        Request(ENDPOINT_SLICE, "default"),
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.244.0.1"]}],
            "ports": [],
        },
    )


@asynccontextmanager
async def followed(port: int) -> AsyncIterator[tuple[State, FollowStats]]:
    state, stats = State(), FollowStats()
    source = Source(endpoint=f"http://127.0.0.1:{port}")
    task = asyncio.create_task(follow(source, state, lambda _: None, stats, timing=TIMING))
    try:
        yield state, stats
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def serving(api: Registry, port: int = 0) -> AsyncIterator[int]:
    server = await rest.start(api, RestConfig(port=port))
    try:
        yield server.address[1]
    finally:
        await server.close()


async def all_connected(stats: FollowStats) -> None:
    await until(lambda: len(stats.kinds) == 3 and all(kind.connected for kind in stats.kinds.values()))


async def test_objects_come_change_and_go() -> None:
    api = new_api()
    for number in range(7):
        create_service(api, f"s{number}")
        create_slice(api, f"s{number}")
    async with serving(api) as port, followed(port) as (state, stats):
        await until(lambda: state.synced == {Namespace, Service, EndpointSlice})
        assert (len(state.namespaces), len(state.services), len(state.slices)) == (1, 7, 7)
        assert all(service.virtual_ips for service in state.services.values())
        await all_connected(stats)
        assert sum(stats.rest.requests.values()) == 3, "lists are streamed"
        create_service(api, "late")
        api.delete(Request(SERVICE, "default", "s0"))
        api.delete(Request(ENDPOINT_SLICE, "default", "s0"))
        await until(lambda: ("default", "late") in state.services and ("default", "s0") not in state.slices)
        assert ("default", "s0") not in state.services
        assert [kind.lists for kind in stats.kinds.values()] == [1, 1, 1]


async def test_a_restart_without_stored_data_is_noticed() -> None:
    api, replacement = new_api(), new_api()
    for number in range(5):
        create_service(api, f"old{number}")
    create_service(replacement, "new")
    with held_port() as held:
        port = held.getsockname()[1]
        async with followed(port) as (state, stats):
            async with serving(api, port):
                await all_connected(stats)
            await until(lambda: bool(stats.kinds[Service].errors["connection"]))
            async with serving(replacement, port):
                await until(lambda: set(state.services) == {("default", "new")})
            assert stats.kinds[Service].relists == {"restored": 1, "unconfirmed": 1}
