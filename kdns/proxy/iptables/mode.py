"""Mode iptables: its semantics and its renderer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kdns.proxy.plan.semantics import Semantics

if TYPE_CHECKING:
    from kdns.proxy.plan.plan import Plan

IPTABLES: Final = Semantics(
    "iptables",
    hairpins_everywhere=True,
    loopback_node_ports=frozenset({"IPv4"}),
    accepts_health_checks=True,
    routes_loopback=True,
)


def text(plan: Plan) -> str:
    """Returns both families' restores."""
    from kdns.proxy.iptables.text import iptables_text  # noqa: PLC0415 - nothing else of the mode is imported for its row

    return iptables_text(plan)
