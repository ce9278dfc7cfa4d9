"""The iptables rules around the virtual servers: they depend on configuration and node, and on no Service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kdns.proxy.plan.plan import FamilyPlan


class Jump(NamedTuple):
    """A rule of a built-in chain that leads to a chain of the frame: arguments as iptables takes them."""

    table: str
    chain: str
    rule: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """`text` is input of iptables-restore --noflush; `jumps` are to be inserted at the top, in this order."""

    text: str
    jumps: tuple[Jump, ...] = ()


def frame(half: FamilyPlan) -> Frame:
    """The rules of one family."""
    del half
    return Frame("")
