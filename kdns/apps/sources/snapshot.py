"""A snapshot of the cluster for commands that run once, from manifests or from an API server."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from kdns.apps.sources.source import ObjectSource
from kdns.cluster.io.api_servers import api_servers
from kdns.cluster.io.pager import list_objects
from kdns.cluster.objects import EndpointSlice, Namespace, Node, Object, Pod, Service, ServiceCIDR
from kdns.cluster.observed import ObservedPod, SelectingService
from kdns.cluster.state import State
from kdns.cluster.watch import RESOURCES, DecodeFailure, Resource, Timing
from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, NAMESPACE, NODE, POD, SERVICE, SERVICE_CIDR, Json, Kind
from kdns.errors import ApiServerError, InputError
from kdns.net import Address

if TYPE_CHECKING:
    from kdns.cluster.io.connection import Connection
    from kdns.controlplane.server.registry import Registry

KINDS: Final[Mapping[type[Object], Kind]] = {
    Namespace: NAMESPACE,
    Service: SERVICE,
    EndpointSlice: ENDPOINT_SLICE,
    Pod: POD,
    Node: NODE,
}
_OF_A_NODE: Final[Mapping[type[Object], type[Object]]] = {
    Service: SelectingService,
    EndpointSlice: EndpointSlice,
    Node: Node,
}


@dataclass(slots=True)
class Snapshot:
    """Services, EndpointSlices and Nodes. Only snapshots of manifests have `namespaces` and Pods."""

    state: State = field(default_factory=State)
    service_cidrs: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()
    api_servers: tuple[tuple[Address, int], ...] = ()
    namespaces: tuple[str, ...] = ()

    def check_namespace(self, name: str) -> None:
        """Raises InputError for a namespace that the manifests lack."""
        if name not in self.namespaces:
            raise InputError(f"--namespace {name}: no such namespace; there is {', '.join(self.namespaces)}")


async def snapshot_of(source: ObjectSource, warn: Callable[[str], None]) -> Snapshot:
    """A Service gets no EndpointSlices of controllers if manifests have its own. Raises InputError and
    ApiServerError.
    """
    return await (_snapshot_from_manifests if source.manifests else _snapshot_from_server)(source, warn)


async def _snapshot_from_manifests(source: ObjectSource, warn: Callable[[str], None]) -> Snapshot:
    # Late: importing the control plane takes long, and listing from a server does not need it.
    from kdns.controlplane.io.in_memory import has_manifest, in_memory_cluster, stored  # noqa: PLC0415

    api = await in_memory_cluster(source.manifests, source.cluster, warn)
    snapshot = Snapshot(service_cidrs=_cidrs(stored(api, SERVICE_CIDR)))
    for obj in _decoded(api, {**_OF_A_NODE, Pod: ObservedPod}):
        snapshot.state.upsert(obj)
    snapshot.state.synced.add(Pod)
    defined = tuple(node["metadata"]["name"] for node in stored(api, NODE) if has_manifest(node))
    snapshot.node_names = defined or (source.cluster.node_name,)
    snapshot.namespaces = tuple(namespace["metadata"]["name"] for namespace in stored(api, NAMESPACE))
    return snapshot


async def _snapshot_from_server(source: ObjectSource, warn: Callable[[str], None]) -> Snapshot:
    snapshot = Snapshot(api_servers=await api_servers(source.api))
    async with api_connection(source) as connection:
        for obj in await _all_listed(connection, _OF_A_NODE, warn):
            snapshot.state.upsert(obj)
        try:
            for obj in await _listed(connection, RESOURCES[ServiceCIDR], warn):
                snapshot.state.upsert(obj)
        except ApiServerError as error:
            if error.status != 404:  # before Kubernetes 1.33 they do not exist
                warn(f"the service ranges are unknown; unused cluster IPs are treated as external addresses: {error}")
    ranges = snapshot.state.service_cidrs.values()
    snapshot.service_cidrs = tuple(cidr for service_cidr in ranges for cidr in service_cidr.spec.cidrs or ())
    snapshot.node_names = tuple(name for _, name in sorted(snapshot.state.nodes))
    return snapshot


async def add_pods(snapshot: Snapshot, source: ObjectSource, namespace: str, warn: Callable[[str], None]) -> None:
    """Adds the Pods of one namespace to a server's snapshot; a refusal is a warning."""
    try:
        async with api_connection(source) as connection:
            for pod in await _listed(connection, RESOURCES[Pod].decoded_as(ObservedPod), warn, namespace):
                snapshot.state.upsert(pod)
    except ApiServerError as error:
        warn(f"Pods are unknown: {error}")
    else:
        snapshot.state.synced.add(Pod)


async def objects_of(
    source: ObjectSource, types: Mapping[type[Object], type[Object]], warn: Callable[[str], None]
) -> list[Object]:
    """The objects of these kinds, decoded as these types. Raises as `snapshot_of`."""
    if source.manifests:
        from kdns.controlplane.io.in_memory import in_memory_cluster  # noqa: PLC0415 - see above

        return [*_decoded(await in_memory_cluster(source.manifests, source.cluster, warn), types)]
    async with api_connection(source) as connection:
        return await _all_listed(connection, types, warn)


def _decoded(api: Registry, types: Mapping[type[Object], type[Object]]) -> Iterator[Object]:
    from kdns.controlplane.io.in_memory import stored  # noqa: PLC0415 - see above

    return (msgspec.convert(obj, decoded) for kind, decoded in types.items() for obj in stored(api, KINDS[kind]))


def api_connection(source: ObjectSource) -> Connection:
    # Late: importing an HTTP client takes long, and manifests do not need it.
    from kdns.cluster.io.connection import Connection, RestStats  # noqa: PLC0415

    return Connection(source.api, RestStats(), Timing())


async def _all_listed(
    connection: Connection, types: Mapping[type[Object], type[Object]], warn: Callable[[str], None]
) -> list[Object]:
    lists = [await _listed(connection, RESOURCES[kind].decoded_as(decoded), warn) for kind, decoded in types.items()]
    return [obj for listed in lists for obj in listed]


async def _listed(
    connection: Connection, resource: Resource, warn: Callable[[str], None], namespace: str = ""
) -> list[Object]:
    def skip(failure: DecodeFailure) -> None:
        warn(f"{resource.plural} {'/'.join(filter(None, failure.key or ('?',)))} is left out: {failure.reason}")

    return await list_objects(connection, resource, skip, namespace=namespace)


def chosen_node(snapshot: Snapshot, name: str, warn: Callable[[str], None]) -> str:
    """The node of --node; by default the only one, or the one with this machine's name. Raises InputError without
    one.
    """
    names = snapshot.node_names
    if ("", name) in snapshot.state.nodes or (not name and len(names) == 1):
        return name or names[0]
    if not name:
        if (own := socket.gethostname().lower()) in names:
            return own
        choice = f"there are {', '.join(names)}" if names else "the API has none"
        raise InputError(f"--node NAME is needed: {choice}")
    if any(
        endpoint.node_name == name
        for endpoint_slice in snapshot.state.slices.values()
        for endpoint in endpoint_slice.endpoints or ()
    ):
        warn(f"Node {name} does not exist, only endpoints on it: its addresses and zone are unknown")
        return name
    raise InputError(f"--node {name}: no such node; there is {', '.join(names) or 'none'}")


def _cidrs(objects: list[Json]) -> tuple[str, ...]:
    return tuple(cidr for obj in objects for cidr in (obj.get("spec") or {}).get("cidrs") or ())
