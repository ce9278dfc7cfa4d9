"""The rules of both families as text to read, or to load: for each family, what its restore program takes."""

from __future__ import annotations

from typing import Final

from kdns.net import FAMILIES, Family
from kdns.proxy.iptables.frame import Features
from kdns.proxy.iptables.tables import Tables
from kdns.proxy.plan.plan import FamilyPlan, Plan

_PROGRAMS: Final[dict[Family, str]] = {"IPv4": "iptables-restore", "IPv6": "ip6tables-restore"}


def iptables_text(plan: Plan) -> str:
    """Both families' restores, for the program that each names."""
    return "\n".join(family_text(plan.of(family)) for family in FAMILIES)


def family_text(half: FamilyPlan) -> str:
    """One family's restore, with the jumps from built-in chains behind it."""
    tables = Tables(half, Features())
    lines = [f"# {half.family}: {_PROGRAMS[half.family]} --noflush", tables.whole({}).rstrip("\n")]
    lines.append("# jumps from the built-in chains, where they are not there yet")
    for table in dict.fromkeys(jump.table for jump in tables.jumps):
        jumps = (f"-I {jump.chain} {jump}" for jump in tables.jumps if jump.table == table)
        lines += (f"*{table}", *jumps, "COMMIT")
    return "\n".join((*lines, ""))
