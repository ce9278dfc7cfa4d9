"""Mode userspace: its semantics and its renderer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kdns.net import FAMILIES
from kdns.proxy.plan.semantics import TCP_UDP, Semantics

if TYPE_CHECKING:
    from kdns.proxy.plan.plan import Plan

USERSPACE: Final = Semantics(
    "userspace",
    protocols=TCP_UDP,
    guards_without_endpoints=True,
    rejects_undefined_ports=True,
    drops_unallocated=True,
    loopback_node_ports=frozenset({"IPv4", "IPv6"}),
    relays=True,
)


def text(plan: Plan) -> str:
    """Returns a description of every relay, and the rules of nftables that capture for relays."""
    from kdns.proxy.nftables.table import ruleset  # noqa: PLC0415 - nothing else of the mode is imported for its row
    from kdns.proxy.userspace.capture import Capture  # noqa: PLC0415
    from kdns.proxy.userspace.relays import listing, relay_addresses  # noqa: PLC0415

    lines, numbers = listing(plan)
    addresses = {family: next(relay_addresses(plan.of(family))) for family in FAMILIES}
    return "\n".join((*lines, "", ruleset(Capture(plan, numbers, addresses).plan)))
