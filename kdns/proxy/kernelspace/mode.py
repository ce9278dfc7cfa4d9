"""Mode kernelspace: its semantics and its renderer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kdns.proxy.plan.semantics import TCP_UDP, Semantics

if TYPE_CHECKING:
    from kdns.proxy.plan.plan import Plan

KERNELSPACE: Final = Semantics(
    "kernelspace",
    protocols=TCP_UDP,
    has_one_list=True,
    refuses=False,
    treats_clients_alike=True,
    restricts_sources=False,
    restricts_node_ports=False,
    times_affinity=False,
    has_one_target_port=True,
    supported_endpoints=64,
)


def text(plan: Plan) -> str:
    """Returns the requests that create the endpoints and load balancers of both families."""
    from kdns.proxy.kernelspace.text import requests_text  # noqa: PLC0415 - nothing else is imported for the mode's row

    return requests_text(plan)
