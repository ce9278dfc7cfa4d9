"""The rules of how workloads replace their Pods: numbers and percentages, and which of them go together."""

from __future__ import annotations

import re
from typing import Any

from kdns.controlplane.causes import forbidden, invalid_value, required, unsupported
from kdns.controlplane.kinds import Json
from kdns.controlplane.status import Cause

NOT_NEGATIVE = "must be greater than or equal to 0"
NO_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
_PERCENT = re.compile(r"([0-9]+)%")


def _number(value: Any) -> int:
    """A number or percentage as a number, 0 for a text that is neither."""
    if isinstance(value, int):
        return value
    found = _PERCENT.fullmatch(str(value))
    return int(found[1]) if found else 0


def _int_or_percent(path: str, value: Any) -> list[Cause]:
    if value is None:
        return []
    if isinstance(value, str):
        return [] if _PERCENT.fullmatch(value) else [invalid_value(path, value, NO_PERCENT)]
    return [] if value >= 0 else [invalid_value(path, value, NOT_NEGATIVE)]


def _at_most_all(path: str, value: Any) -> list[Cause]:
    over = isinstance(value, str) and _PERCENT.fullmatch(value) and _number(value) > 100
    return [invalid_value(path, value, "must not be greater than 100%")] if over else []


def deployment_strategy(strategy: Json) -> list[Cause]:
    """spec.strategy of a Deployment."""
    rolling, path = strategy.get("rollingUpdate"), "spec.strategy.rollingUpdate"
    match strategy.get("type"):
        case "Recreate":
            why = "may not be specified when strategy `type` is 'Recreate'"
            return [] if rolling is None else [forbidden(path, why)]
        case "RollingUpdate":
            unavailable, surge = (rolling or {}).get("maxUnavailable"), (rolling or {}).get("maxSurge")
            causes = _int_or_percent(f"{path}.maxUnavailable", unavailable)
            causes += _int_or_percent(f"{path}.maxSurge", surge)
            if not _number(unavailable) and not _number(surge):
                why = "may not be 0 when `maxSurge` is 0"
                causes.append(invalid_value(f"{path}.maxUnavailable", unavailable, why))
            return causes + _at_most_all(f"{path}.maxUnavailable", unavailable)
        case _:
            return [unsupported("spec.strategy", strategy, ("Recreate", "RollingUpdate"))]


def stateful_rolling(path: str, rolling: Json) -> list[Cause]:
    """The rolling update of a StatefulSet."""
    causes = []
    if (partition := rolling.get("partition") or 0) < 0:
        causes.append(invalid_value(f"{path}.partition", partition, NOT_NEGATIVE))
    if (unavailable := rolling.get("maxUnavailable")) is not None:
        where = f"{path}.maxUnavailable"
        causes += _int_or_percent(where, unavailable)
        if not _number(unavailable):
            causes.append(invalid_value(where, unavailable, "cannot be 0"))
        causes += _at_most_all(where, unavailable)
    return causes


def daemon_rolling(path: str, rolling: Json) -> list[Cause]:
    """The rolling update of a DaemonSet."""
    causes = []
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    for field, value in (("maxUnavailable", unavailable), ("maxSurge", surge)):
        causes += _int_or_percent(f"{path}.{field}", value) + _at_most_all(f"{path}.{field}", value)
    if _number(unavailable) and _number(surge):
        why = "may not be set when maxUnavailable is non-zero"
        causes.append(invalid_value(f"{path}.maxSurge", surge, why))
    elif not _number(unavailable) and not _number(surge):
        causes.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return causes
