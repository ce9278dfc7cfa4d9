"""The modes that kdns has: one row each.

A mode's room has its semantics and renderer in `mode.py`, and in `io/mode.py` how it starts, watches and cleans up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kdns.errors import InputError
from kdns.proxy.iptables import mode as iptables
from kdns.proxy.ipvs import mode as ipvs
from kdns.proxy.nftables import mode as nftables
from kdns.proxy.plan.mode import Mode
from kdns.proxy.userspace import mode as userspace

if TYPE_CHECKING:
    from kdns.proxy.plan.plan import Plan


class Row(NamedTuple):
    """A mode: how it treats packets, and a plan as its text, for people and for tests."""

    semantics: Mode
    text: Callable[[Plan], str]


ROWS: Final = (
    Row(nftables.NFTABLES, nftables.text),
    Row(iptables.IPTABLES, iptables.text),
    Row(ipvs.IPVS, ipvs.text),
    Row(userspace.USERSPACE, userspace.text),
)
MODES: Final[Mapping[str, Mode]] = {row.semantics.name: row.semantics for row in ROWS}
NAMES: Final = tuple(MODES)

REFUSALS: Final[Mapping[str, str]] = {
    "kernelspace": "it is for Windows, whose network service (HNS) knows endpoints by ids that it gives them itself: "
    "what would be applied cannot be worked out from objects of the cluster",
}
"""Further modes that a KubeProxyConfiguration may name, and why kdns does not have them."""


def semantics(name: str) -> Mode:
    """Returns the semantics of a mode; InputError for one that kdns does not have."""
    if name not in MODES:
        raise InputError(f"mode {name} is not one of kdns's: {REFUSALS[name]}")
    return MODES[name]


def rendered(plan: Plan) -> str:
    """Returns the text of a plan, which has a mode of kdns's."""
    return next(row.text(plan) for row in ROWS if row.semantics.name == plan.ipv4.mode.name)
