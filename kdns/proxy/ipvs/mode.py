"""Mode ipvs: its semantics and its renderer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kdns.proxy.plan.semantics import Semantics

if TYPE_CHECKING:
    from kdns.proxy.plan.plan import Plan

IPVS: Final = Semantics(
    "ipvs",
    guards_without_endpoints=True,
    rejects_undefined_ports=True,
    link_local_node_ports=False,
    accepts_health_checks=True,
    has_one_list=True,
    owns_addresses=True,
    schedules=True,
)


def text(plan: Plan) -> str:
    """Returns sets, rules, virtual servers and addresses of both families."""
    from kdns.proxy.ipvs.text import ipvs_text  # noqa: PLC0415 - nothing else of the mode is imported for its row

    return ipvs_text(plan)
