"""The cluster at one moment, for commands that answer and end: from manifests, or from an API server asked once."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from kdns.aio.source import Source
from kdns.aio.sources import PAGE
from kdns.cluster.objects import EndpointSlice, Node, Object, Service, ServiceCIDR
from kdns.cluster.state import State
from kdns.cluster.watching import RESOURCES, UNREADABLE, Timing, listed
from kdns.controlplane.api import Api
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.kinds import ENDPOINT_SLICE, NODE, SERVICE, SERVICE_CIDR, Json
from kdns.errors import ApiServerError, InputError

_KINDS: Final = (Service, EndpointSlice, Node)


class ServiceCIDRs(msgspec.Struct, frozen=True):
    """A list of them."""

    items: tuple[ServiceCIDR, ...] = ()


@dataclass(slots=True)
class Snapshot:
    """Services, EndpointSlices and Nodes; `service_cidrs` empty where nobody says.

    `node_names` are the nodes that somebody may mean who names none.
    """

    state: State = field(default_factory=State)
    service_cidrs: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()


async def snapshot_from_manifests(
    paths: Sequence[Path], config: ClusterConfig, warn: Callable[[str], None]
) -> Snapshot:
    """The cluster that `kdns up` would make of these files and folders.

    A Service whose EndpointSlices are in the files has those and no others. Raises ManifestError and InputError.
    """
    # Late: the control plane takes its time to import, and asking a server needs none of it.
    from kdns.aio.rehearsal import is_by_hand, rehearsed  # noqa: PLC0415

    api = await rehearsed(paths, config, warn)
    made = Snapshot(service_cidrs=_cidrs(_stored(api, SERVICE_CIDR)))
    slices = _stored(api, ENDPOINT_SLICE)
    by_hand = {_service(each) for each in slices if is_by_hand(each)}
    kept = [each for each in slices if is_by_hand(each) or _service(each) not in by_hand]
    nodes = _stored(api, NODE)
    for service in _stored(api, SERVICE):
        made.state.upsert(msgspec.convert(service, Service))
    for each in kept:
        made.state.upsert(msgspec.convert(each, EndpointSlice))
    for node in nodes:
        made.state.upsert(msgspec.convert(node, Node))
    defined = tuple(node["metadata"]["name"] for node in nodes if is_by_hand(node))
    made.node_names = defined or (config.node_name,)
    return made


async def snapshot_from_server(server: str, kubeconfig: str, warn: Callable[[str], None]) -> Snapshot:
    """The cluster of the server at this URL or of a kubeconfig. Raises KubeconfigError and ApiServerError."""
    # Late, because an HTTP client takes its time to import: manifests need none of it.
    from kdns.aio.connection import Connection, RestStats  # noqa: PLC0415

    made = Snapshot()
    async with Connection(Source(kubeconfig=kubeconfig, endpoint=server), RestStats(), Timing()) as connection:
        for kind in _KINDS:
            for obj in await _objects(connection, kind, warn):
                made.state.upsert(obj)
        try:
            body = await connection.get(RESOURCES[ServiceCIDR].path, {})
            items = msgspec.json.decode(body, type=ServiceCIDRs).items
            made.service_cidrs = tuple(cidr for item in items for cidr in item.spec.cidrs or ())
        except (ApiServerError, msgspec.DecodeError) as error:
            if getattr(error, "status", 0) != 404:  # before Kubernetes 1.33 there are none
                warn(f"the service ranges are not known, so addresses of nobody count as strangers: {error}")
    made.node_names = tuple(name for _, name in sorted(made.state.nodes))
    return made


def chosen_node(snapshot: Snapshot, name: str, warn: Callable[[str], None]) -> str:
    """The node that is meant: the one that is named, else the only one, else this machine. InputError for none."""
    known = snapshot.node_names
    if ("", name) in snapshot.state.nodes or (not name and len(known) == 1):
        return name or known[0]
    if not name:
        if (own := socket.gethostname().lower()) in known:
            return own
        found = f"there are {', '.join(known)}" if known else "the API has none"
        raise InputError(f"--node NAME is needed: {found}")
    if any(endpoint.node_name == name for each in snapshot.state.slices.values() for endpoint in each.endpoints or ()):
        warn(f"there is no Node {name}, only endpoints on it: its addresses and zone are not known")
        return name
    raise InputError(f"--node {name}: no such node; there is {', '.join(known) or 'none'}")


async def _objects(connection: Any, kind: type[Object], warn: Callable[[str], None]) -> list[Object]:
    resource, params = RESOURCES[kind], {"limit": str(PAGE)}
    found: list[Object] = []
    while True:
        try:
            page = listed(resource, await connection.get(resource.path, params))
        except UNREADABLE as error:
            reason = f"{resource.path}: not the answer of a Kubernetes API: {error}"
            raise ApiServerError(connection.server, reason) from error
        found += page.objects
        for each in page.unreadable:
            warn(f"{resource.plural} {'/'.join(filter(None, each.key or ('?',)))} is left out: {each.reason}")
        if not page.continue_token:
            return found
        params["continue"] = page.continue_token


def _stored(api: Api, kind: Any) -> list[Json]:
    return list(api.list(kind, None).items)


def _service(endpoint_slice: Json) -> tuple[str, str]:
    metadata = endpoint_slice["metadata"]
    return metadata["namespace"], (metadata.get("labels") or {}).get("kubernetes.io/service-name", "")


def _cidrs(objects: list[Json]) -> tuple[str, ...]:
    return tuple(cidr for obj in objects for cidr in (obj.get("spec") or {}).get("cidrs") or ())
