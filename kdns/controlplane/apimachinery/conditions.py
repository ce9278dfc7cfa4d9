"""The conditions of an object's status (meta/v1 Condition)."""

from __future__ import annotations

from collections.abc import Sequence

from kdns.controlplane.apimachinery.kinds import Json


def condition_of(obj: Json, kind: str) -> Json | None:
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind:
            found: Json = condition
            return found
    return None


def is_true(obj: Json, kind: str) -> bool:
    return (condition_of(obj, kind) or {}).get("status") == "True"


def is_ready(obj: Json) -> bool:
    return is_true(obj, "Ready")


def set_condition(conditions: Sequence[Json], new: Json, now: str) -> list[Json]:
    """Returns the conditions with `new` in place of the one of its type, or at the end.

    Its lastTransitionTime is `now` (RFC 3339), or that of the condition before if both have the same status.
    """
    old: Json = next((each for each in conditions if each.get("type") == new["type"]), {})
    since = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
    timed = {**new, "lastTransitionTime": since or now}
    return [timed if each is old else each for each in conditions] if old else [*conditions, timed]
