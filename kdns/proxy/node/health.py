"""Health for load balancers: whether they may use the node, and how many local endpoints a Service has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kdns.cluster.objects import EndpointSlice, Key, Node
from kdns.cluster.state import State
from kdns.net import FAMILIES, Family
from kdns.proxy.plan.service_ports import cluster_ips, health_check_port

TO_BE_DELETED: Final = "ToBeDeletedByClusterAutoscaler"
"""The key of the taint that the cluster autoscaler sets before it removes a node."""


def is_eligible(node: Node | None) -> bool:
    """Returns whether load balancers may use the node: it exists and is not about to be deleted (KEP-3836)."""
    if node is None or node.metadata.deletion_timestamp:
        return False
    return all(taint.key != TO_BE_DELETED for taint in node.spec.taints or ())


class HealthCheck(NamedTuple):
    """A health check node port in one family, at every address that has node ports, and its answer."""

    family: Family
    port: int
    service: Key
    local_endpoints: int


def health_checks(state: State, node_name: str, key: Key) -> tuple[HealthCheck, ...]:
    """Returns the health checks of a Service."""
    service = state.services.get(key)
    port = health_check_port(service) if service else 0
    if not service or not port:
        return ()
    own, slices = cluster_ips(service), state.slices_of(key)
    counts = {family: len(_local_ready(slices, family, node_name)) for family in FAMILIES if family in own}
    return tuple(HealthCheck(family, port, key, count) for family, count in counts.items())


def _local_ready(slices: Iterable[EndpointSlice], family: Family, node_name: str) -> set[str]:
    """Returns the addresses of this node's ready endpoints. A terminating endpoint is not ready, even if it serves."""
    return {
        endpoint.addresses[0]
        for endpoint_slice in slices
        if endpoint_slice.address_type == family
        for endpoint in endpoint_slice.endpoints or ()
        if endpoint.addresses and node_name and endpoint.node_name == node_name and endpoint.is_ready
    }
