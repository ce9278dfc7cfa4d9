"""The rules of both families as text to read, or to load: for each family, what its restore program takes."""

from __future__ import annotations

from kdns.net import FAMILIES
from kdns.proxy.iptables.base_chains import FEATURES, JUMPS, Features
from kdns.proxy.iptables.tables import Tables
from kdns.proxy.plan.plan import FamilyPlan, Plan
from kdns.proxy.xtables.rules import RESTORE, inserted


def iptables_text(plan: Plan, features: Features = FEATURES) -> str:
    """Returns both families' restores, for the program that each names."""
    return "\n".join(family_text(plan.of(family), features) for family in FAMILIES)


def family_text(family_plan: FamilyPlan, features: Features = FEATURES) -> str:
    """Returns one family's restore, with the jumps from built-in chains behind it."""
    rules = Tables(family_plan, features).whole({})
    lines = [f"# {family_plan.family}: {RESTORE[family_plan.family]} --noflush", rules.rstrip("\n")]
    lines.append("# jumps from the built-in chains, where they are not there yet")
    return "\n".join((*lines, inserted(JUMPS)))
