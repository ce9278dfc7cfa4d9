"""The modes that kdns has: one row each.

A mode's room has its semantics and renderer in `mode.py`, and in `io/mode.py` how it starts, watches and cleans up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kdns.proxy.iptables import mode as iptables
from kdns.proxy.ipvs import mode as ipvs
from kdns.proxy.kernelspace import mode as kernelspace
from kdns.proxy.nftables import mode as nftables
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.userspace import mode as userspace

if TYPE_CHECKING:
    from kdns.proxy.plan.plan import Plan


class Row(NamedTuple):
    """A mode: how it treats packets, and a plan as its text, for people and for tests."""

    semantics: Semantics
    text: Callable[[Plan], str]


ROWS: Final = (
    Row(nftables.NFTABLES, nftables.text),
    Row(iptables.IPTABLES, iptables.text),
    Row(ipvs.IPVS, ipvs.text),
    Row(userspace.USERSPACE, userspace.text),
    Row(kernelspace.KERNELSPACE, kernelspace.text),
)
MODES: Final[Mapping[str, Semantics]] = {row.semantics.name: row.semantics for row in ROWS}
NAMES: Final = tuple(MODES)


def rendered(plan: Plan) -> str:
    """Returns the text of a plan, which has a mode of kdns's."""
    return next(row.text(plan) for row in ROWS if row.semantics.name == plan.ipv4.mode.name)
