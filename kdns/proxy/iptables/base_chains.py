"""The part of the rules that does not depend on Services: chains, the jumps to them, and where node ports are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Final

from kdns.net import Family
from kdns.proxy.plan.plan import FamilyPlan
from kdns.proxy.settings.section import DEFAULT_MARK
from kdns.proxy.xtables.names import (
    CANARY,
    EXTERNAL_SERVICES,
    FILTER,
    FIREWALL,
    FORWARD,
    MANGLE,
    NAT,
    NODE_PORTS,
    POSTROUTING,
    PROXY_FIREWALL,
    SERVICES,
)
from kdns.proxy.xtables.rules import (
    LOCAL_DESTINATION,
    OWNER,
    Chain,
    Rule,
    comment,
    destination,
    jump,
    mark_masquerade,
    postrouting,
    rule,
)

INVALID_PACKETS: Final = "ct_state_invalid_dropped_pkts"
LOCALHOST_PACKETS: Final = "localhost_nps_accepted_pkts"
_LOOPBACK: Final = {"IPv4": ip_network("127.0.0.0/8"), "IPv6": ip_network("::1/128")}
_LINK_LOCAL: Final = ip_network("fe80::/10")
_NEW: Final = ("-m", "conntrack", "--ctstate", "NEW")


@dataclass(frozen=True, slots=True)
class Features:
    """Features of the programs and the kernel, and the bit of packet marks that asks for masquerade.

    `nfacct`: the kernel has counters of that name (nfnetlink_acct), which have to exist before a rule names them.
    `tcp_be_liberal`: the kernel passes TCP packets outside of the window (nf_conntrack_tcp_be_liberal), so invalid
    packets are not dropped.
    `chains_per_section`: a restore commits after so many Service chains, and never more at once; 0: it has one commit
    for a table. iptables-nft takes time with the square of what it commits, iptables-legacy writes the table each time.
    """

    nfacct: bool = False
    tcp_be_liberal: bool = False
    chains_per_section: int = 0
    masquerade_mark: int = DEFAULT_MARK


FEATURES: Final = Features()


JUMPS: Final = (
    *(
        jump(FILTER, chain, EXTERNAL_SERVICES, *_NEW, text="kubernetes externally-visible service portals")
        for chain in ("INPUT", "FORWARD")
    ),
    jump(FILTER, "INPUT", NODE_PORTS, text="kubernetes health check service ports"),
    *(jump(FILTER, chain, SERVICES, *_NEW, text="kubernetes service portals") for chain in ("FORWARD", "OUTPUT")),
    jump(FILTER, "FORWARD", FORWARD, text="kubernetes forwarding rules"),
    *(
        jump(FILTER, chain, PROXY_FIREWALL, *_NEW, text="kubernetes load balancer firewall")
        for chain in ("INPUT", "OUTPUT", "FORWARD")
    ),
    *(jump(NAT, chain, SERVICES, text="kubernetes service portals") for chain in ("OUTPUT", "PREROUTING")),
    jump(NAT, "POSTROUTING", POSTROUTING, text="kubernetes postrouting rules"),
    *(jump(FILTER, chain, FIREWALL) for chain in ("INPUT", "OUTPUT")),
)
"""The jumps in the order in which each is inserted at the top of its chain, as kube-proxy inserts them."""


def base_chains(family_plan: FamilyPlan, features: Features) -> Iterator[Chain]:
    """Rules that depend on Services stand before these."""
    mark = f"{features.masquerade_mark:#x}"
    yield Chain(MANGLE, CANARY, (comment(OWNER),))
    yield Chain(FILTER, NODE_PORTS)
    yield Chain(FILTER, EXTERNAL_SERVICES)
    yield Chain(FILTER, SERVICES)
    yield Chain(FILTER, PROXY_FIREWALL)
    yield Chain(FILTER, FORWARD, tuple(_forward(mark, features)))
    yield Chain(FILTER, FIREWALL, tuple(_firewall(family_plan)))
    yield Chain(FILTER, CANARY)
    yield Chain(NAT, SERVICES, tuple(_to_node_ports(family_plan)))
    yield Chain(NAT, NODE_PORTS)
    yield postrouting(mark)
    yield mark_masquerade(mark)
    yield Chain(NAT, CANARY)


def _forward(mark: str, features: Features) -> Iterator[Rule]:
    if not features.tcp_be_liberal:
        counter = f"-m nfacct --nfacct-name {INVALID_PACKETS}" if features.nfacct else ""
        yield rule("-m conntrack --ctstate INVALID", counter, "-j DROP")
    yield rule(comment("kubernetes forwarding rules"), f"-m mark --mark {mark}/{mark} -j ACCEPT")
    text = "kubernetes forwarding conntrack rule"
    yield rule(comment(text), "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")


def _firewall(family_plan: FamilyPlan) -> Iterator[Rule]:
    """Where loopback addresses are routed, nobody else may send to them."""
    if family_plan.mode.routes_loopback and serves_loopback(family_plan):
        loopback = _LOOPBACK[family_plan.family]
        text = comment("block incoming localnet connections")
        yield f"! -s {loopback} -d {loopback} {text} -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"


def _to_node_ports(family_plan: FamilyPlan) -> Iterator[Rule]:
    text = comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")
    yield from (rule(match, text, f"-j {NODE_PORTS}") for match in node_port_destinations(family_plan))


def serves_loopback(family_plan: FamilyPlan) -> bool:
    return family_plan.node_ports.has_loopback and any(
        map(_LOOPBACK[family_plan.family].overlaps, family_plan.node_ports.networks)
    )


def node_port_destinations(family_plan: FamilyPlan) -> tuple[str, ...]:
    """Matches destinations with node ports: a packet matches at most one of them.

    Differs: where nodePortAddresses has a loopback network, kube-proxy serves 127.0.0.1 of it only.
    """
    addresses, loopback = family_plan.node_ports, _LOOPBACK[family_plan.family]
    if addresses.is_everywhere:
        return (LOCAL_DESTINATION if addresses.has_loopback else f"! -d {loopback} {LOCAL_DESTINATION}",)
    own = tuple(destination(str(address)) for address in family_plan.node.addresses if address in addresses)
    return *_networks(family_plan, family_plan.family), *own


def _networks(family_plan: FamilyPlan, family: Family) -> Iterator[str]:
    """Local networks whose addresses are not among the node's."""
    for network in family_plan.node_ports.networks:
        if family_plan.node_ports.has_loopback and network.overlaps(_LOOPBACK[family]):
            loopback = _LOOPBACK[family]
            yield f"-d {network if network.prefixlen > loopback.prefixlen else loopback}"
        if family == "IPv6" and network.overlaps(_LINK_LOCAL):
            local = network if network.prefixlen > _LINK_LOCAL.prefixlen else _LINK_LOCAL
            yield f"-d {local} {LOCAL_DESTINATION}"
