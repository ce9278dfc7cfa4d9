"""The conditions of an object's status (meta/v1 Condition)."""

from __future__ import annotations

from collections.abc import Sequence

from kdns.controlplane.apimachinery.kinds import Json


def condition_of(obj: Json, kind: str) -> Json | None:
    conditions: list[Json] = (obj.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def is_true(obj: Json, kind: str) -> bool:
    return (condition_of(obj, kind) or {}).get("status") == "True"


def is_ready(obj: Json) -> bool:
    return is_true(obj, "Ready")


def set_condition(conditions: Sequence[Json], new: Json, now: str) -> list[Json]:
    """Replaces the condition of `new`'s type, or appends it.

    lastTransitionTime is `now` (RFC 3339), or the old one if the status is unchanged.
    """
    old: Json = next((condition for condition in conditions if condition.get("type") == new["type"]), {})
    since = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
    timed = {**new, "lastTransitionTime": since or now}
    return [timed if condition is old else condition for condition in conditions] if old else [*conditions, timed]
