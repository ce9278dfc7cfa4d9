"""The strategy of PodDisruptionBudgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdns.controlplane.meta.kinds import DISRUPTION_BUDGET, Kind
from kdns.controlplane.resources.policy import columns
from kdns.controlplane.resources.policy.validation import validate_disruption_budget
from kdns.controlplane.resources.strategy import Strategy, status

_NO_DISRUPTIONS: Final = status({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0})

STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    DISRUPTION_BUDGET: Strategy(
        validate_disruption_budget,
        columns.DISRUPTION_BUDGETS,
        first_status=_NO_DISRUPTIONS,
        allow_unconditional_update=False,
    ),
}
