"""Mode nftables: its semantics and its renderer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kdns.proxy.plan.semantics import Semantics

if TYPE_CHECKING:
    from kdns.proxy.plan.plan import Plan

NFTABLES: Final = Semantics(
    "nftables",
    guards_without_endpoints=True,
    rejects_undefined_ports=True,
    drops_unallocated=True,
    primary_node_ports=True,
)


def text(plan: Plan) -> str:
    """Returns both tables as nft takes them."""
    from kdns.proxy.nftables.table import ruleset  # noqa: PLC0415 - nothing else of the mode is imported for its row

    return ruleset(plan)
