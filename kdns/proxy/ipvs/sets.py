"""The ipsets, and what a front and a Service port put into them.

Names, types and entries are kube-proxy's (pkg/proxy/ipvs/ipset.go), except for the last three sets.

Differs: kube-proxy lets IPVS refuse packets to a front without endpoints. It sends packets to a front with policy Local
and without local endpoints to any endpoint, and their answers are lost. Here three further sets name the fronts whose
packets the rules in base_chains.py reject or drop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kdns.net import Family
from kdns.netlink.ipset import DEFAULT_MAX_ENTRIES
from kdns.proxy.plan.branches import Client, Verdict
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKind, PortPlan

MAX_NAME: Final = 31
"""The kernel's longest name of a set."""
MAX_ELEMENTS: Final = DEFAULT_MAX_ENTRIES
"""Most entries of a set of kube-proxy's: it makes no set where there is one with another number."""
OWN_MAX_ELEMENTS: Final = 1 << 20
PORT_RANGE: Final = (0, 65535)

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

OWN: Final = frozenset({NO_ENDPOINTS, CLUSTER_IP_NO_LOCAL, EXTERNAL_NO_LOCAL})
"""Sets that kube-proxy does not have."""

TYPES: Final = {
    LOOP_BACK: HASH_IP_PORT_IP,
    CLUSTER_IP: HASH_IP_PORT,
    EXTERNAL_IP: HASH_IP_PORT,
    EXTERNAL_IP_LOCAL: HASH_IP_PORT,
    LOAD_BALANCER: HASH_IP_PORT,
    LOAD_BALANCER_LOCAL: HASH_IP_PORT,
    LOAD_BALANCER_FIREWALL: HASH_IP_PORT,
    SOURCE_IP: HASH_IP_PORT_IP,
    SOURCE_CIDR: HASH_IP_PORT_NET,
    NODE_PORTS["TCP"]: BITMAP_PORT,
    NODE_PORTS_LOCAL["TCP"]: BITMAP_PORT,
    NODE_PORTS["UDP"]: BITMAP_PORT,
    NODE_PORTS_LOCAL["UDP"]: BITMAP_PORT,
    NODE_PORTS["SCTP"]: HASH_IP_PORT,
    NODE_PORTS_LOCAL["SCTP"]: HASH_IP_PORT,
    HEALTH_CHECKS: BITMAP_PORT,
    IPVS_IPS: HASH_IP,
    NO_ENDPOINTS: HASH_IP_PORT,
    CLUSTER_IP_NO_LOCAL: HASH_IP_PORT,
    EXTERNAL_NO_LOCAL: HASH_IP_PORT,
}
"""Every set, by its name in IPv4, with its type."""


class Entry(NamedTuple):
    """An entry of a set; the set's type says which fields count.

    `address` is in canonical form, `protocol` is TCP, UDP or SCTP, `peer` an address or a network in canonical form.
    """

    address: str = ""
    protocol: str = ""
    port: int = 0
    peer: str = ""

    def __str__(self) -> str:
        if not self.address:
            return str(self.port)
        port = (f"{self.protocol.lower()}:{self.port}",) if self.protocol else ()
        return ",".join((self.address, *port, *((self.peer,) if self.peer else ())))


@dataclass(frozen=True, slots=True)
class IpSet:
    """One set. `family` does not count for the type bitmap:port."""

    name: str
    type: str
    family: Family
    max_elements: int = MAX_ELEMENTS
    entries: dict[Entry, None] = field(default_factory=dict)


SetMember: TypeAlias = tuple[str, Entry]
"""The name of a set in IPv4, and an entry of it."""


def set_name(name: str, family: Family) -> str:
    """Returns the set's name in one family: KUBE-6-… for IPv6, cut to the kernel's longest name."""
    return name if family == "IPv4" else name.replace("KUBE-", "KUBE-6-", 1)[:MAX_NAME]


def empty_sets(family: Family) -> dict[str, IpSet]:
    return {
        name: IpSet(set_name(name, family), kind, family, OWN_MAX_ELEMENTS if name in OWN else MAX_ELEMENTS)
        for name, kind in TYPES.items()
    }


def front_entries(front: Front, own: tuple[str, ...]) -> Iterator[SetMember]:
    """Yields a front's entries in sets, beside its address; `own` are the node's addresses with node ports."""
    key = front.key
    is_local = any(branch.client is Client.NODE for branch in front.branches)
    at = tuple(Entry(address, key.protocol, key.port) for address in ((key.address,) if key.address else own))
    match front.kind:
        case FrontKind.CLUSTER_IP:
            names: tuple[str, ...] = (CLUSTER_IP,)
        case FrontKind.EXTERNAL_IP:
            names = (EXTERNAL_IP_LOCAL if is_local else EXTERNAL_IP,)
        case FrontKind.LOAD_BALANCER_IP:
            names = (LOAD_BALANCER, LOAD_BALANCER_LOCAL) if is_local else (LOAD_BALANCER,)
        case FrontKind.NODE_PORT:
            names = (NODE_PORTS[key.protocol], *((NODE_PORTS_LOCAL[key.protocol],) if is_local else ()))
    for name in names if at else ():
        if TYPES[name] == BITMAP_PORT:
            yield name, Entry(port=key.port)
        else:
            yield from ((name, entry) for entry in at)
    if ranges := front.source_ranges:
        yield from ((LOAD_BALANCER_FIREWALL, entry) for entry in at)
        for network in ranges:
            name, peer = SOURCE_CIDR, str(network)
            if peer in {f"{key.address}/32", f"{key.address}/128"}:
                name, peer = SOURCE_IP, key.address
            yield from ((name, entry._replace(peer=peer)) for entry in at)
    if front.refusal is Verdict.REJECT:
        yield from ((NO_ENDPOINTS, entry) for entry in at)
    elif front.refusal:
        name = EXTERNAL_NO_LOCAL if front.lists else CLUSTER_IP_NO_LOCAL
        yield from ((name, entry) for entry in at)


def port_entries(port: PortPlan, family_plan: FamilyPlan) -> Iterator[SetMember]:
    for endpoint in port.endpoints.reachable if port.fronts and port.hairpins else ():
        if endpoint.address in port.hairpins:
            yield LOOP_BACK, Entry(endpoint.address, port.name.protocol, endpoint.port, endpoint.address)
    if family_plan.mode.accepts_health_checks and port.health_check_port:
        yield HEALTH_CHECKS, Entry(port=port.health_check_port)
