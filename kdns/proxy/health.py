"""What load balancers hear: whether the node's dataplane works, and how many endpoints of a Service it has itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kdns.cluster.objects import EndpointSlice, Key, Node, Service
from kdns.cluster.state import State
from kdns.proxy.config import FAMILIES, VERSION, Family
from kdns.proxy.plan import FamilyPlan
from kdns.proxy.planning import cluster_ip, is_proxied

LEAVING: Final = "ToBeDeletedByClusterAutoscaler"
"""The key of the taint that a node has before the cluster autoscaler removes it."""


def is_current(*, established: bool, oldest_pending_s: float | None, now_s: float, sync_s: float) -> bool:
    """Whether the dataplane is current: nothing waits longer than two sync periods.

    Differs: before the first sync it is not. kube-proxy opens its port late instead.
    """
    return established and (oldest_pending_s is None or now_s - oldest_pending_s < 2 * sync_s)


def is_eligible(node: Node | None) -> bool:
    """Whether the node is there to stay (KEP-3836)."""
    if node is None or node.metadata.deletion_timestamp:
        return False
    return all(taint.key != LEAVING for taint in node.spec.taints or ())


class CheckPlace(NamedTuple):
    """Where a load balancer asks about one Service: a port of every address that has node ports, in one family."""

    family: Family
    port: int


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """What it is told."""

    namespace: str
    service: str
    local_endpoints: int


def health_checks(state: State, node_name: str, keys: Iterable[Key]) -> dict[Key, Mapping[CheckPlace, HealthCheck]]:
    """The health checks of each of these Services; an empty mapping for one that has none."""
    return {key: dict(_of_service(state, node_name, key)) for key in keys}


def check_addresses(half: FamilyPlan) -> tuple[str, ...]:
    """The addresses to listen on: the family's wildcard where all addresses of the node have node ports."""
    if any(network.prefixlen == 0 for network in half.node_port_networks):
        return ("0.0.0.0" if half.family == "IPv4" else "::",)
    own = (each for each in half.node.addresses if each.version == VERSION[half.family])
    return tuple(str(each) for each in own if half.serves_node_ports_at(each))


def _of_service(state: State, node_name: str, key: Key) -> Iterable[tuple[CheckPlace, HealthCheck]]:
    service = state.services.get(key)
    port = _port(service) if service else 0
    if not service or not port:
        return
    slices = tuple(state.slices_by_service.get(key, {}).values())
    for family in FAMILIES:
        if cluster_ip(service, family):
            yield CheckPlace(family, port), HealthCheck(*key, len(_local_ready(slices, family, node_name)))


def _port(service: Service) -> int:
    """The port, where the Service leaves it to the load balancer to find the nodes with endpoints."""
    spec = service.spec
    is_local = spec.type == "LoadBalancer" and spec.external_traffic_policy == "Local"
    return spec.health_check_node_port if is_local and is_proxied(service) else 0


def _local_ready(slices: Iterable[EndpointSlice], family: Family, node_name: str) -> set[str]:
    """Addresses of this node's endpoints that are ready. One that terminates is not, even if it still serves."""
    return {
        endpoint.addresses[0]
        for each in slices
        if each.address_type == family
        for endpoint in each.endpoints or ()
        if endpoint.addresses and node_name and endpoint.node_name == node_name and endpoint.is_ready
    }
