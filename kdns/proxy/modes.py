"""The proxy modes: one row for each, with its semantics and its renderer.

What a mode does with the kernel and with sockets has a row of the same name in the dataplane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kdns.errors import InputError
from kdns.proxy.iptables.text import iptables_text
from kdns.proxy.ipvs.text import ipvs_text
from kdns.proxy.nftables.capture import userspace_text
from kdns.proxy.nftables.table import ruleset
from kdns.proxy.plan.modes import IPTABLES, IPVS, NFTABLES, USERSPACE, Mode
from kdns.proxy.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class ProxyMode:
    """A mode. The dataplane has a row of its name, unless kdns does not have it: `refusal` says why.

    A mode that is refused has neither semantics nor a renderer.
    """

    name: str
    semantics: Mode | None = None
    render: Callable[[Plan], str] | None = None
    refusal: str = ""


MODES: Final[Mapping[str, ProxyMode]] = {
    mode.name: mode
    for mode in (
        ProxyMode("nftables", NFTABLES, ruleset),
        ProxyMode("iptables", IPTABLES, iptables_text),
        ProxyMode("ipvs", IPVS, ipvs_text),
        ProxyMode("userspace", USERSPACE, userspace_text),
        ProxyMode(
            "kernelspace",
            refusal="it is for Windows, whose network service (HNS) knows endpoints by ids that it gives them itself: "
            "what would be applied cannot be worked out from objects of the cluster",
        ),
    )
}
"""Every mode that a KubeProxyConfiguration may name."""

NAMES: Final = tuple(name for name, mode in MODES.items() if not mode.refusal)
"""The modes that kdns has."""


def semantics(name: str) -> Mode:
    """The semantics of a mode; InputError for one that kdns does not have."""
    mode = MODES[name]
    if mode.semantics is None:
        raise InputError(f"mode {name} is not one of kdns's: {mode.refusal}")
    return mode.semantics


def rendered(plan: Plan) -> str:
    """The text of the plan's mode; InputError for a mode that kdns does not have."""
    mode = MODES[plan.ipv4.mode.name]
    if mode.render is None:
        raise InputError(f"mode {mode.name} is not one of kdns's: {mode.refusal}")
    return mode.render(plan)
