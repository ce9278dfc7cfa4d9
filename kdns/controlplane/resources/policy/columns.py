"""The columns of PodDisruptionBudgets."""

from __future__ import annotations

from typing import Any, Final

from kdns.controlplane.meta.kinds import Json
from kdns.controlplane.resources.columns import AGE, NAME, Column, Printer, age, name


def disruption_budget_cells(obj: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, limits, allowed disruptions, age."""
    spec = obj.get("spec") or {}
    limits = [
        str(spec[field]) if spec.get(field) is not None else "N/A" for field in ("minAvailable", "maxUnavailable")
    ]
    return [name(obj), *limits, (obj.get("status") or {}).get("disruptionsAllowed") or 0, age(obj, now_s)]


DISRUPTION_BUDGETS: Final = Printer(
    (
        NAME,
        Column("Min Available", "spec.minAvailable"),
        Column("Max Unavailable", "spec.maxUnavailable"),
        Column("Allowed Disruptions", "status.disruptionsAllowed", type="integer"),
        AGE,
    ),
    disruption_budget_cells,
)
