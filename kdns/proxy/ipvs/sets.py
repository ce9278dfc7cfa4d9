"""The ipsets, and what a front and a Service port put into them.

Names, types and entries are kube-proxy's (pkg/proxy/ipvs/ipset.go), except for the last three sets.

Differs: kube-proxy lets IPVS refuse packets to a front without endpoints. It sends packets to a front with policy Local
and without local endpoints to any endpoint, and their answers are lost. Here three further sets name the fronts whose
packets the rules in base_chains.py reject or drop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kdns.net import Family
from kdns.netlink.ipset import DEFAULT_MAX_ENTRIES
from kdns.proxy.plan.branches import Client, Verdict
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKind, PortPlan

MAX_NAME: Final = 31
"""The kernel's longest name of a set."""
MAX_ELEMENTS: Final = DEFAULT_MAX_ENTRIES
"""Most entries of a set of kube-proxy's: it makes no set where there is one with another number."""
OWN_MAX_ELEMENTS: Final = 1 << 20

HASH_IP: Final = "hash:ip"
HASH_IP_PORT: Final = "hash:ip,port"
HASH_IP_PORT_IP: Final = "hash:ip,port,ip"
HASH_IP_PORT_NET: Final = "hash:ip,port,net"
BITMAP_PORT: Final = "bitmap:port"

LOOP_BACK: Final = "KUBE-LOOP-BACK"
CLUSTER_IP: Final = "KUBE-CLUSTER-IP"
EXTERNAL_IP: Final = "KUBE-EXTERNAL-IP"
EXTERNAL_IP_LOCAL: Final = "KUBE-EXTERNAL-IP-LOCAL"
LOAD_BALANCER: Final = "KUBE-LOAD-BALANCER"
LOAD_BALANCER_LOCAL: Final = "KUBE-LOAD-BALANCER-LOCAL"
LOAD_BALANCER_FIREWALL: Final = "KUBE-LOAD-BALANCER-FW"
SOURCE_IP: Final = "KUBE-LOAD-BALANCER-SOURCE-IP"
SOURCE_CIDR: Final = "KUBE-LOAD-BALANCER-SOURCE-CIDR"
HEALTH_CHECKS: Final = "KUBE-HEALTH-CHECK-NODE-PORT"
IPVS_IPS: Final = "KUBE-IPVS-IPS"
NO_ENDPOINTS: Final = "KUBE-NO-ENDPOINTS"
CLUSTER_IP_NO_LOCAL: Final = "KUBE-CLUSTER-IP-NO-LOCAL"
EXTERNAL_NO_LOCAL: Final = "KUBE-EXTERNAL-NO-LOCAL"

_SUFFIXES: Final = {"TCP": "TCP", "UDP": "UDP", "SCTP": "SCTP-HASH"}
NODE_PORTS: Final = {protocol: f"KUBE-NODE-PORT-{suffix}" for protocol, suffix in _SUFFIXES.items()}
NODE_PORTS_LOCAL: Final = {protocol: f"KUBE-NODE-PORT-LOCAL-{suffix}" for protocol, suffix in _SUFFIXES.items()}

_HASHED: Final = "with type 'hash ip:port'"

OWN: Final = frozenset({NO_ENDPOINTS, CLUSTER_IP_NO_LOCAL, EXTERNAL_NO_LOCAL})
"""Sets that kube-proxy does not have."""

SETS: Final = {
    LOOP_BACK: (HASH_IP_PORT_IP, "endpoints dst ip:port, source ip for solving hairpin purpose"),
    CLUSTER_IP: (HASH_IP_PORT, "service cluster ip + port for masquerade purpose"),
    EXTERNAL_IP: (HASH_IP_PORT, "service external ip + port for masquerade and filter purpose"),
    EXTERNAL_IP_LOCAL: (HASH_IP_PORT, "service external ip + port with externalTrafficPolicy=local"),
    LOAD_BALANCER: (HASH_IP_PORT, "service lb portal"),
    LOAD_BALANCER_LOCAL: (HASH_IP_PORT, "service load balancer ip + port with externalTrafficPolicy=local"),
    LOAD_BALANCER_FIREWALL: (HASH_IP_PORT, "service load balancer ip + port for load balancer with sourceRange"),
    SOURCE_IP: (HASH_IP_PORT_IP, "service load balancer ip + port + source IP for packet filter purpose"),
    SOURCE_CIDR: (HASH_IP_PORT_NET, "service load balancer ip + port + source cidr for packet filter purpose"),
    NODE_PORTS["TCP"]: (BITMAP_PORT, "nodeport TCP port for masquerade purpose"),
    NODE_PORTS_LOCAL["TCP"]: (BITMAP_PORT, "nodeport TCP port with externalTrafficPolicy=local"),
    NODE_PORTS["UDP"]: (BITMAP_PORT, "nodeport UDP port for masquerade purpose"),
    NODE_PORTS_LOCAL["UDP"]: (BITMAP_PORT, "nodeport UDP port with externalTrafficPolicy=local"),
    NODE_PORTS["SCTP"]: (HASH_IP_PORT, f"nodeport SCTP port for masquerade purpose {_HASHED}"),
    NODE_PORTS_LOCAL["SCTP"]: (HASH_IP_PORT, f"nodeport SCTP port with externalTrafficPolicy=local {_HASHED}"),
    HEALTH_CHECKS: (BITMAP_PORT, "health check node port"),
    IPVS_IPS: (HASH_IP, ""),
    NO_ENDPOINTS: (HASH_IP_PORT, ""),
    CLUSTER_IP_NO_LOCAL: (HASH_IP_PORT, ""),
    EXTERNAL_NO_LOCAL: (HASH_IP_PORT, ""),
}
"""Type by name in IPv4, and kube-proxy's comment after "Kubernetes " of the rules that match the set."""

SetMember: TypeAlias = tuple[str, str]
"""The name of a set in IPv4, and an entry as `netlink.ipset` writes it."""


@dataclass(frozen=True, slots=True)
class IpSet:
    """One set. `family` is ignored for the type bitmap:port."""

    name: str
    type: str
    family: Family
    max_elements: int = MAX_ELEMENTS
    entries: dict[str, None] = field(default_factory=dict)


def set_name(name: str, family: Family) -> str:
    """KUBE-6-… in IPv6, cut to the kernel's longest name."""
    return name if family == "IPv4" else name.replace("KUBE-", "KUBE-6-", 1)[:MAX_NAME]


def empty_sets(family: Family) -> dict[str, IpSet]:
    return {
        name: IpSet(set_name(name, family), kind, family, OWN_MAX_ELEMENTS if name in OWN else MAX_ELEMENTS)
        for name, (kind, _) in SETS.items()
    }


def front_entries(front: Front, node_port_addresses: tuple[str, ...]) -> Iterator[SetMember]:
    key = front.key
    is_local = any(branch.client is Client.NODE for branch in front.branches)
    addresses = (key.address,) if key.address else node_port_addresses
    entries = [f"{address},{key.protocol.lower()}:{key.port}" for address in addresses]
    match front.kind:
        case FrontKind.CLUSTER_IP:
            names: tuple[str, ...] = (CLUSTER_IP,)
        case FrontKind.EXTERNAL_IP:
            names = (EXTERNAL_IP_LOCAL if is_local else EXTERNAL_IP,)
        case FrontKind.LOAD_BALANCER_IP:
            names = (LOAD_BALANCER, LOAD_BALANCER_LOCAL) if is_local else (LOAD_BALANCER,)
        case FrontKind.NODE_PORT:
            names = (NODE_PORTS[key.protocol], *((NODE_PORTS_LOCAL[key.protocol],) if is_local else ()))
    for name in names if entries else ():
        if SETS[name][0] == BITMAP_PORT:
            yield name, str(key.port)
        else:
            yield from ((name, entry) for entry in entries)
    if ranges := front.source_ranges:
        yield from ((LOAD_BALANCER_FIREWALL, entry) for entry in entries)
        for network in ranges:
            name, source = SOURCE_CIDR, str(network)
            if source in {f"{key.address}/32", f"{key.address}/128"}:
                name, source = SOURCE_IP, key.address
            yield from ((name, f"{entry},{source}") for entry in entries)
    if front.refusal is Verdict.REJECT:
        yield from ((NO_ENDPOINTS, entry) for entry in entries)
    elif front.refusal:
        name = EXTERNAL_NO_LOCAL if front.lists else CLUSTER_IP_NO_LOCAL
        yield from ((name, entry) for entry in entries)


def port_entries(port: PortPlan, family_plan: FamilyPlan) -> Iterator[SetMember]:
    protocol = port.name.protocol.lower()
    for endpoint in port.endpoints.reachable if port.fronts and port.hairpins else ():
        if endpoint.address in port.hairpins:
            yield LOOP_BACK, f"{endpoint.address},{protocol}:{endpoint.port},{endpoint.address}"
    if family_plan.mode.accepts_health_checks and port.health_check_port:
        yield HEALTH_CHECKS, str(port.health_check_port)
