"""A proxy mode as the plan sees it: what it does with packets where modes differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeVar

T = TypeVar("T")

TCP_UDP: Final = frozenset({"TCP", "UDP"})
TCP_UDP_SCTP: Final = TCP_UDP | {"SCTP"}


def _semantic(meaning: str, default: T) -> T:
    """Returns a field with what it means, in words for a person."""
    made: T = field(default=default, metadata={"meaning": meaning})
    return made


@dataclass(frozen=True, slots=True)
class Semantics:
    """One mode's semantics. The plan reads them to make its decisions; each field's metadata says what it means."""

    name: str
    protocols: frozenset[str] = _semantic("the protocols of Service ports that are served", TCP_UDP_SCTP)
    guards_without_endpoints: bool = _semantic(
        "loadBalancerSourceRanges drop also where no endpoint could serve", default=False
    )
    rejects_undefined_ports: bool = _semantic(
        "a port of a cluster IP in use that no Service port defines is refused", default=False
    )
    drops_unallocated: bool = _semantic(
        "packets to an unused cluster IP in the service ranges are dropped", default=False
    )
    hairpins_everywhere: bool = _semantic(
        "an endpoint that is its own client is masqueraded on any node, not only on its own", default=False
    )
    loopback_node_ports: frozenset[str] = _semantic(
        "the families that have node ports at loopback addresses", frozenset()
    )
    link_local_node_ports: bool = _semantic("node ports are at IPv6 link-local addresses too", default=True)
    primary_node_ports: bool = _semantic(
        "nodePortAddresses defaults to the node's primary addresses, not to all of its addresses", default=False
    )
    accepts_health_checks: bool = _semantic("the firewall accepts packets to health check node ports", default=False)
    routes_loopback: bool = _semantic(
        "sets route_localnet where node ports are at 127.0.0.0/8, so that packets may leave from there", default=False
    )
    relays: bool = _semantic(
        "the node accepts connections and opens others to endpoints, which see the node's address", default=False
    )
    has_one_list: bool = _semantic(
        "all clients that a front serves get the same list of endpoints: with externalTrafficPolicy Local, Pods of the"
        " node and the node itself get local endpoints while there are any",
        default=False,
    )
    owns_addresses: bool = _semantic(
        "addresses of Services are the node's own: they answer ping, and ports of external and load balancer IPs that"
        " no Service port defines are refused too",
        default=False,
    )
    refuses: bool = _semantic(
        "packets to a front without endpoints are rejected or dropped, not left alone", default=True
    )
    treats_clients_alike: bool = _semantic(
        "a packet to a front is treated alike whoever sends it: a Pod of the node, the node itself or another machine",
        default=False,
    )
    restricts_sources: bool = _semantic("loadBalancerSourceRanges restrict clients", default=True)
    restricts_node_ports: bool = _semantic("nodePortAddresses restricts node ports", default=True)
    times_affinity: bool = _semantic("the affinity of a client ends after its timeoutSeconds", default=True)
    has_one_target_port: bool = _semantic(
        "all endpoints of a front have one port, that of most of them; others are not used", default=False
    )
    supported_endpoints: int = _semantic("the number of endpoints of a front that is documented as supported", 0)
