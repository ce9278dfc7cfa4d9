"""The part of kdns's table that does not depend on Services: sets and maps, base chains, and the chains between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdns.proxy.nftables import sets
from kdns.proxy.nftables.fronts import (
    NO_ENDPOINTS_NUMBERS,
    REJECT_CHAIN,
    branch_rules,
    external_local_chain,
)
from kdns.proxy.nftables.objects import DESTINATION, SOURCE, Chain, Hook, Set, expression
from kdns.proxy.nftables.sets import Side
from kdns.proxy.plan.branches import ENDPOINT_SETS, Verdict
from kdns.proxy.plan.plan import FamilyPlan
from kdns.proxy.settings.section import DEFAULT_MARK

_CHAINS: Final = f"@{sets.CHAINS.name}"
_LOCAL_CHAINS: Final = f"@{sets.LOCAL_CHAINS.name}"
_REFUSALS: Final = (
    f"{{ {NO_ENDPOINTS_NUMBERS[Verdict.REJECT]} : goto {REJECT_CHAIN}, {NO_ENDPOINTS_NUMBERS[Verdict.DROP]} : drop }}"
)
"""The verdicts of fronts without endpoints, by number."""


def base_chains(family_plan: FamilyPlan, masquerade_mark: int = DEFAULT_MARK) -> tuple[Set | Chain, ...]:
    relays = (sets.RELAYS,) if family_plan.mode.relays else ()
    return (*_sets(), *relays, *_chains(family_plan, masquerade_mark))


def _sets() -> Iterator[Set]:
    for side in sets.SIDES:
        yield side.services
        yield side.no_endpoints
        yield from side.lists.values()
        for protocol in sets.PROTOCOLS:
            for verdict in ENDPOINT_SETS:
                maps = side.endpoint_maps[verdict, protocol]
                yield from (maps.endpoints, maps.ids, maps.by_id)
    yield sets.CHAINS
    yield sets.LOCAL_CHAINS
    yield sets.CLUSTER_IPS
    yield sets.HAIRPINS
    yield sets.CLIENTS
    yield sets.FIREWALLED
    yield sets.FIREWALL_RANGES


def _chains(family_plan: FamilyPlan, masquerade_mark: int) -> Iterator[Chain]:
    """Differs: kube-proxy rejects TCP by an ICMP error too. A Pod of this node that gets it while it is still in
    connect() ignores it and waits a second for the next, and the kernel limits the rate of ICMP errors.
    """
    front, port = (expression(side.key, family_plan.family) for side in sets.SIDES)
    daddr, saddr = expression((DESTINATION,), family_plan.family), expression((SOURCE,), family_plan.family)
    mark, node_port = f"{masquerade_mark:#x}", _node_port_match(family_plan)
    yield Chain("mark-for-masquerade", (f"meta mark set meta mark or {mark}",))
    yield Chain(REJECT_CHAIN, ("meta l4proto tcp reject with tcp reset", "reject"))
    outside = f"{front} . {saddr} != @{sets.FIREWALL_RANGES.name}"
    yield Chain("firewall-check", (f"{front} @{sets.FIREWALLED.name} {outside} drop",))
    yield Chain(
        "nodeport-endpoints-check",
        (f"{node_port} {_by_number(port, sets.NODE_PORTS.no_endpoints, _REFUSALS)}",) if node_port else (),
    )
    yield Chain("service-endpoints-check", (_by_number(front, sets.ADDRESSES.no_endpoints, _REFUSALS),))
    yield Chain("cluster-ips-check", tuple(_cluster_ips_check(family_plan, daddr)))
    for side in sets.SIDES:
        yield Chain(external_local_chain(side), tuple(_external_local(family_plan, side)))
    node_ports = (f"{node_port} {_by_number(port, sets.NODE_PORTS.services, _CHAINS)}",) if node_port else ()
    yield Chain("services", (_by_number(front, sets.ADDRESSES.services, _CHAINS), *node_ports))
    masquerading = (
        f"meta mark and {mark} != 0 meta mark set meta mark xor {mark} masquerade fully-random",
        f"ct status dnat {saddr} . {daddr} @{sets.HAIRPINS.name} masquerade fully-random",
    )
    yield Chain("masquerading", masquerading)
    endpoints_checks = ("ct state new jump nodeport-endpoints-check", "ct state new jump service-endpoints-check")
    yield _base("filter", "prerouting", -110, "ct state new jump firewall-check", name="filter-prerouting-pre-dnat")
    yield _base("filter", "output", -110, "ct state new jump firewall-check", name="filter-output-pre-dnat")
    relays = (f"ct state new ct status and dnat == 0 {front} @{sets.RELAYS.name} goto {REJECT_CHAIN}",)
    yield _base("filter", "input", 0, *(relays if family_plan.mode.relays else ()), *endpoints_checks)
    yield _base("filter", "forward", 0, *_LEAVING)
    yield _base("filter", "output", 0, *_LEAVING)
    yield _base("nat", "prerouting", -100, "jump services")
    yield _base("nat", "output", -100, "jump services")
    yield _base("nat", "postrouting", 100, "jump masquerading")


_LEAVING: Final = ("ct state new jump service-endpoints-check", "ct state new jump cluster-ips-check")


def _base(kind: str, hook: str, priority: int, *rules: str, name: str = "") -> Chain:
    return Chain(name or f"{kind}-{hook}", rules, Hook(kind, hook, priority))


def _external_local(family_plan: FamilyPlan, side: Side) -> Iterator[str]:
    """A front that is in no map of external policy Local is dropped by a later hook."""
    key = expression(side.key, family_plan.family)
    ways = {verdict: _by_number(key, side.lists[verdict], _LOCAL_CHAINS) for verdict in ENDPOINT_SETS}
    return branch_rules(family_plan.external_local, ways, family_plan.local_pods, family_plan.family)


def _by_number(key: str, numbers: Set, verdicts: str) -> str:
    """Statements that follow the verdict for the number that a map has for the key."""
    return f"meta priority set {key} map @{numbers.name} meta priority vmap {verdicts}"


def _node_port_match(family_plan: FamilyPlan) -> str:
    """Matches destinations with node ports; "" without node ports."""
    addresses, daddr = family_plan.node_ports, expression((DESTINATION,), family_plan.family)
    if not addresses.networks:
        return ""
    local = "fib daddr type local"
    if not addresses.has_loopback:
        local += f" {daddr} != {'127.0.0.0/8' if family_plan.family == 'IPv4' else '::1'}"
    return local if addresses.is_everywhere else f"{local} {daddr} {{ {', '.join(map(str, addresses.networks))} }}"


def _cluster_ips_check(family_plan: FamilyPlan, daddr: str) -> Iterator[str]:
    if family_plan.mode.rejects_undefined_ports:
        yield f"{daddr} @{sets.CLUSTER_IPS.name} goto {REJECT_CHAIN}"
    if family_plan.unallocated:
        yield f"{daddr} {{ {', '.join(map(str, family_plan.unallocated))} }} drop"
