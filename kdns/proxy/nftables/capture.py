"""Capturing for relays by nftables: mode nftables' table with another last step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kdns.net import FAMILIES, VERSION, Address, Family
from kdns.proxy.nftables.base_chains import Delivery
from kdns.proxy.nftables.fronts import REJECT_CHAIN, Content, ListChain, add_front
from kdns.proxy.nftables.numbers import TableNumbers
from kdns.proxy.nftables.objects import Chain, ElementKey, expression
from kdns.proxy.nftables.sets import RELAY_PORTS, RELAYED, side_of
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.branches import Verdict
from kdns.proxy.plan.plan import FamilyPlan, Front, Plan
from kdns.proxy.userspace.relays import RelayKey, captured, listing, own_address

_UNCAPTURED: Final = tuple(
    f"ct state new ct status and dnat == 0 {protocol} dport @{ports.name} goto {REJECT_CHAIN}"
    for protocol, ports in RELAY_PORTS.items()
)
"""A relay serves packets to its front only, not those that are sent to its own port."""


def capture_table(family_plan: FamilyPlan, ports: Mapping[RelayKey, int], to: Address | None) -> Table:
    """Returns the table that leads packets to the relays' `ports` at the node's address `to`.

    Without one they go to the address of the interface of arrival, which then must have one. `ports` may change from
    one plan to the next.
    """

    def content_of(fronts: Iterable[Front], family_plan: FamilyPlan, numbers: TableNumbers) -> Content:
        content = Content(numbers)
        for capture in captured(family_plan.family, fronts, ports):
            add_front(content, capture.front, family_plan, _relay_chain(capture.ports, to), masquerades=False)
        return content

    return Table(
        family_plan,
        Delivery(
            content_of,
            RELAYED,
            maps=lambda maps: (maps.relays,),
            sets=tuple(RELAY_PORTS.values()),
            input_rules=_UNCAPTURED,
            masquerades=False,
        ),
    )


def _relay_chain(ports: Mapping[Verdict, int], to: Address | None) -> ListChain:
    """Leads to the relays of one front."""
    target = f"dnat to {f'[{to}]' if to.version == VERSION['IPv6'] else to}" if to else "redirect to "

    def put(content: Content, front: Front, key: ElementKey, verdict: Verdict, family: Family) -> str:
        protocol = str(key[-2])
        maps = side_of(front.kind).endpoint_maps[verdict, protocol]
        content.put(maps.relays, (*key[:-2], key[-1]), ports[verdict])
        content.put(RELAY_PORTS[protocol], (ports[verdict],))
        place = expression(maps.key, family)
        chain = Chain(f"to-{maps.relays.name}", (f"meta l4proto {protocol} {target}:{place} map @{maps.relays.name}",))
        content.chains[chain.name] = chain
        return chain.name

    return put


def userspace_text(plan: Plan) -> str:
    """Returns a description of every relay, and the rules that capture for relays, to read."""
    lines, numbers = listing(plan)
    family_plans = [plan.of(family) for family in FAMILIES]
    tables = "".join(
        capture_table(family_plan, numbers, own_address(family_plan)).whole() for family_plan in family_plans
    )
    return "\n".join((*lines, "", tables))
