"""The proxy modes as the plan sees them: what each does with packets where modes differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TCP_UDP: Final = frozenset({"TCP", "UDP"})
TCP_UDP_SCTP: Final = TCP_UDP | {"SCTP"}


@dataclass(frozen=True, slots=True)
class Mode:
    """One mode's semantics. The plan reads them to make its decisions.

    `protocols`: Service ports of other protocols are not served.
    `guards_without_endpoints`: loadBalancerSourceRanges drop also where no endpoint could serve.
    `rejects_undefined_ports`: a port of a cluster IP in use that no Service port defines is refused.
    `drops_unallocated`: packets to an address of the service ranges that is no cluster IP in use are dropped.
    `hairpins_everywhere`: an endpoint that is its own client is masqueraded on any node, not only on its own.
    `loopback_node_ports`: the families that have node ports at loopback addresses.
    `primary_node_ports`: nodePortAddresses defaults to the node's primary addresses, not to all of its addresses.
    `accepts_health_checks`: the firewall accepts packets to health check node ports.
    `routes_loopback`: sets route_localnet where node ports are at 127.0.0.0/8, so that packets may leave from there.
    `relays`: the node accepts connections and opens others to endpoints, which see the node's address.
    """

    name: str
    protocols: frozenset[str] = TCP_UDP_SCTP
    guards_without_endpoints: bool = False
    rejects_undefined_ports: bool = False
    drops_unallocated: bool = False
    hairpins_everywhere: bool = False
    loopback_node_ports: frozenset[str] = frozenset()
    primary_node_ports: bool = False
    accepts_health_checks: bool = False
    routes_loopback: bool = False
    relays: bool = False


NFTABLES: Final = Mode(
    "nftables",
    guards_without_endpoints=True,
    rejects_undefined_ports=True,
    drops_unallocated=True,
    primary_node_ports=True,
)
IPTABLES: Final = Mode(
    "iptables",
    hairpins_everywhere=True,
    loopback_node_ports=frozenset({"IPv4"}),
    accepts_health_checks=True,
    routes_loopback=True,
)
USERSPACE: Final = Mode(
    "userspace",
    protocols=TCP_UDP,
    guards_without_endpoints=True,
    rejects_undefined_ports=True,
    drops_unallocated=True,
    loopback_node_ports=frozenset({"IPv4", "IPv6"}),
    relays=True,
)
