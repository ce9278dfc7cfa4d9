"""The proxy modes: one row for each, with its semantics and its renderer.

What a mode does with the kernel and with sockets has a row of the same name in the dataplane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kdns.errors import InputError
from kdns.proxy.iptables.text import iptables_text
from kdns.proxy.nftables.capture import userspace_text
from kdns.proxy.nftables.table import ruleset
from kdns.proxy.plan.modes import IPTABLES, NFTABLES, USERSPACE, Mode
from kdns.proxy.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class ProxyMode:
    """A mode. `semantics`: None for one that cannot be planned. `render`: None for one that has no text.

    `is_applied`: the dataplane has a row of its name. `refusal`: why kdns does not have a mode that kube-proxy has.
    """

    name: str
    semantics: Mode | None = None
    render: Callable[[Plan], str] | None = None
    is_applied: bool = False
    refusal: str = ""


MODES: Final[Mapping[str, ProxyMode]] = {
    mode.name: mode
    for mode in (
        ProxyMode("nftables", NFTABLES, ruleset, is_applied=True),
        ProxyMode("iptables", IPTABLES, iptables_text, is_applied=True),
        ProxyMode("userspace", USERSPACE, userspace_text, is_applied=True),
        ProxyMode("ipvs"),
        ProxyMode(
            "kernelspace",
            refusal="it is for Windows, whose network service (HNS) knows endpoints by ids that it gives them itself: "
            "what would be applied cannot be worked out from objects of the cluster",
        ),
    )
}
"""Every mode that a KubeProxyConfiguration may name."""

NAMES: Final = tuple(name for name, mode in MODES.items() if not mode.refusal)
"""The modes that kdns has, for help and error messages."""

AVAILABLE: Final = tuple(mode.name for mode in MODES.values() if mode.is_applied)
"""The modes that can be applied."""


def semantics(name: str) -> Mode:
    """The semantics of a mode; InputError for one that cannot be planned."""
    if refusal := MODES[name].refusal:
        raise InputError(f"mode {name} is not one of kdns's: {refusal}")
    mode = MODES[name].semantics
    if mode is None:
        planned = ", ".join(mode.name for mode in MODES.values() if mode.semantics)
        raise InputError(f"mode {name} is not built yet; there are {planned}")
    return mode


def rendered(plan: Plan) -> str:
    """The text of the plan's mode; InputError for a mode that has no renderer."""
    render = MODES[plan.ipv4.mode.name].render
    if render is None:
        texts = ", ".join(name for name, mode in MODES.items() if mode.render)
        raise InputError(f"mode {plan.ipv4.mode.name} cannot be rendered yet; there are {texts}")
    return render(plan)
