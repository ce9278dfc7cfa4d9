"""A snapshot of the cluster for commands that run once: of manifests, or of an API server."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kdns.cluster.io.api_servers import api_servers
from kdns.cluster.io.pager import list_objects
from kdns.cluster.objects import EndpointSlice, Namespace, Node, Object, Pod, Service, ServiceCIDR
from kdns.cluster.observed import ObservedPod, SelectingService
from kdns.cluster.source import Source
from kdns.cluster.state import State
from kdns.cluster.watch import RESOURCES, DecodeFailure, Resource, Timing, resource_as
from kdns.controlplane.meta.cluster_config import ClusterConfig
from kdns.controlplane.meta.kinds import ENDPOINT_SLICE, NAMESPACE, NODE, POD, SERVICE, SERVICE_CIDR, Json, Kind
from kdns.errors import ApiServerError, InputError
from kdns.net import Address

if TYPE_CHECKING:
    from kdns.cluster.io.connection import Connection
    from kdns.controlplane.server.api import Api

KINDS: Final[Mapping[type[Object], Kind]] = {
    Namespace: NAMESPACE,
    Service: SERVICE,
    EndpointSlice: ENDPOINT_SLICE,
    Pod: POD,
    Node: NODE,
}
"""The kinds of the control plane, by the types that are followed."""
_OF_A_NODE: Final[Mapping[type[Object], type[Object]]] = {
    Service: SelectingService,
    EndpointSlice: EndpointSlice,
    Node: Node,
}


@dataclass(slots=True)
class Snapshot:
    """Services, EndpointSlices and Nodes; `service_cidrs` is empty if they are unknown.

    `node_names` are the candidates if --node is missing. `api_servers` are the addresses of the server.
    `namespaces` are those of manifests, which have their Pods too.
    """

    state: State = field(default_factory=State)
    service_cidrs: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()
    api_servers: tuple[tuple[Address, int], ...] = ()
    namespaces: tuple[str, ...] = ()

    def check_namespace(self, name: str) -> None:
        """Raises InputError for a namespace that the manifests do not have."""
        if name not in self.namespaces:
            raise InputError(f"--namespace {name}: no such namespace; there is {', '.join(self.namespaces)}")


async def snapshot_from_manifests(
    paths: Sequence[Path], config: ClusterConfig, warn: Callable[[str], None]
) -> Snapshot:
    """Returns the cluster that `kdns up` makes of these files and folders.

    A Service with EndpointSlices in the files has no others. Raises ManifestError and InputError.
    """
    # Late: importing the control plane takes long, and listing from a server does not need it.
    from kdns.controlplane.io.in_memory import has_manifest, in_memory_cluster, stored  # noqa: PLC0415

    api = await in_memory_cluster(paths, config, warn)
    snapshot = Snapshot(service_cidrs=_cidrs(stored(api, SERVICE_CIDR)))
    for obj in _decoded(api, {**_OF_A_NODE, Pod: ObservedPod}):
        snapshot.state.upsert(obj)
    snapshot.state.synced.add(Pod)
    defined = tuple(node["metadata"]["name"] for node in stored(api, NODE) if has_manifest(node))
    snapshot.node_names = defined or (config.node_name,)
    snapshot.namespaces = tuple(namespace["metadata"]["name"] for namespace in stored(api, NAMESPACE))
    return snapshot


async def snapshot_from_server(server: str, kubeconfig: str, warn: Callable[[str], None]) -> Snapshot:
    """Returns the cluster of the server at this URL or of a kubeconfig. Raises KubeconfigError and ApiServerError."""
    source = Source(kubeconfig=kubeconfig, endpoint=server)
    snapshot = Snapshot(api_servers=await api_servers(source))
    async with _connection(source) as connection:
        for kind, known in _OF_A_NODE.items():
            for obj in await _listed(connection, resource_as(RESOURCES[kind], known), warn):
                snapshot.state.upsert(obj)
        try:
            for obj in await _listed(connection, RESOURCES[ServiceCIDR], warn):
                snapshot.state.upsert(obj)
        except ApiServerError as error:
            if error.status != 404:  # before Kubernetes 1.33 they do not exist
                warn(f"the service ranges are unknown; unused cluster IPs are treated as external addresses: {error}")
    ranges = snapshot.state.service_cidrs.values()
    snapshot.service_cidrs = tuple(cidr for each in ranges for cidr in each.spec.cidrs or ())
    snapshot.node_names = tuple(name for _, name in sorted(snapshot.state.nodes))
    return snapshot


async def add_pods(
    snapshot: Snapshot, namespace: str, server: str, kubeconfig: str, warn: Callable[[str], None]
) -> None:
    """Adds the Pods of one namespace to the snapshot of a server. A server that refuses them is warned of."""
    try:
        async with _connection(Source(kubeconfig=kubeconfig, endpoint=server)) as connection:
            for pod in await _listed(connection, resource_as(RESOURCES[Pod], ObservedPod), warn, namespace):
                snapshot.state.upsert(pod)
    except ApiServerError as error:
        warn(f"Pods are unknown: {error}")
    else:
        snapshot.state.synced.add(Pod)


async def objects_from_manifests(
    paths: Sequence[Path],
    config: ClusterConfig,
    types: Mapping[type[Object], type[Object]],
    warn: Callable[[str], None],
) -> list[Object]:
    """Returns the objects of these kinds, decoded as these types, of the same cluster."""
    from kdns.controlplane.io.in_memory import in_memory_cluster  # noqa: PLC0415 - see above

    return [*_decoded(await in_memory_cluster(paths, config, warn), types)]


def _decoded(api: Api, types: Mapping[type[Object], type[Object]]) -> Iterator[Object]:
    from kdns.controlplane.io.in_memory import stored  # noqa: PLC0415 - see above

    return (msgspec.convert(each, known) for kind, known in types.items() for each in stored(api, KINDS[kind]))


async def objects_from_server(
    server: str, kubeconfig: str, types: Mapping[type[Object], type[Object]], warn: Callable[[str], None]
) -> list[Object]:
    """Returns the objects of these kinds, decoded as these types, of a server as in `snapshot_from_server`."""
    found: list[Object] = []
    async with _connection(Source(kubeconfig=kubeconfig, endpoint=server)) as connection:
        for kind, known in types.items():
            found += await _listed(connection, resource_as(RESOURCES[kind], known), warn)
    return found


def _connection(source: Source) -> Connection:
    # Late: importing an HTTP client takes long, and manifests do not need it.
    from kdns.cluster.io.connection import Connection, RestStats  # noqa: PLC0415

    return Connection(source, RestStats(), Timing())


async def _listed(
    connection: Connection, resource: Resource, warn: Callable[[str], None], namespace: str = ""
) -> list[Object]:
    def skip(failure: DecodeFailure) -> None:
        warn(f"{resource.plural} {'/'.join(filter(None, failure.key or ('?',)))} is left out: {failure.reason}")

    return await list_objects(connection, resource, skip, namespace=namespace)


def chosen_node(snapshot: Snapshot, name: str, warn: Callable[[str], None]) -> str:
    """That of --node, else the only one or the one named like this machine. InputError otherwise."""
    names = snapshot.node_names
    if ("", name) in snapshot.state.nodes or (not name and len(names) == 1):
        return name or names[0]
    if not name:
        if (own := socket.gethostname().lower()) in names:
            return own
        choice = f"there are {', '.join(names)}" if names else "the API has none"
        raise InputError(f"--node NAME is needed: {choice}")
    if any(endpoint.node_name == name for each in snapshot.state.slices.values() for endpoint in each.endpoints or ()):
        warn(f"Node {name} does not exist, only endpoints on it: its addresses and zone are unknown")
        return name
    raise InputError(f"--node {name}: no such node; there is {', '.join(names) or 'none'}")


def _cidrs(objects: list[Json]) -> tuple[str, ...]:
    return tuple(cidr for obj in objects for cidr in (obj.get("spec") or {}).get("cidrs") or ())
