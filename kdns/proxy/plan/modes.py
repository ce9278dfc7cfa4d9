"""The proxy modes as the plan sees them: what each does with packets where modes differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kdns.errors import InputError

T = TypeVar("T")

TCP_UDP: Final = frozenset({"TCP", "UDP"})
TCP_UDP_SCTP: Final = TCP_UDP | {"SCTP"}


def _semantic(meaning: str, default: T) -> T:
    """Returns a field with what it means, in words for a person."""
    made: T = field(default=default, metadata={"meaning": meaning})
    return made


@dataclass(frozen=True, slots=True)
class Mode:
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
    schedules: bool = _semantic("a scheduler of the kernel chooses the endpoint, not chance", default=False)


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
IPVS: Final = Mode(
    "ipvs",
    guards_without_endpoints=True,
    rejects_undefined_ports=True,
    link_local_node_ports=False,
    accepts_health_checks=True,
    has_one_list=True,
    owns_addresses=True,
    schedules=True,
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

MODES: Final[Mapping[str, Mode]] = {mode.name: mode for mode in (NFTABLES, IPTABLES, IPVS, USERSPACE)}
"""The modes that kdns has. Each has a renderer and a row of the same name in the dataplane."""
NAMES: Final = tuple(MODES)

REFUSALS: Final[Mapping[str, str]] = {
    "kernelspace": "it is for Windows, whose network service (HNS) knows endpoints by ids that it gives them itself: "
    "what would be applied cannot be worked out from objects of the cluster",
}
"""Further modes that a KubeProxyConfiguration may name, and why kdns does not have them."""


def semantics(name: str) -> Mode:
    """Returns the semantics of a mode; InputError for one that kdns does not have."""
    if name not in MODES:
        raise InputError(f"mode {name} is not one of kdns's: {REFUSALS[name]}")
    return MODES[name]
