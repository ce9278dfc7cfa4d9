"""Numbers of replicas: spec.replicas, and numbers or percentages such as maxSurge (Kubernetes: intstr)."""

from __future__ import annotations

from kdns.controlplane.apimachinery.kinds import Json

_PERCENT = 100


def count(fields: Json | None, name: str) -> int:
    """Returns an integer field, 0 if it is absent."""
    return int((fields or {}).get(name) or 0)


def desired_replicas(obj: Json) -> int:
    return count(obj.get("spec"), "replicas")


def nonzero(**counts: int) -> Json:
    """Returns the fields of a status whose value 0 is omitted."""
    return {name: number for name, number in counts.items() if number}


def int_or_percent(value: int | str | None, total: int, *, up: bool) -> int:
    """Returns a number, or a percentage of `total` rounded up or down; 0 for any other value."""
    if isinstance(value, int):
        return value
    digits = str(value or "").removesuffix("%")
    share = int(digits) * total if digits.isdecimal() else 0
    return -(-share // _PERCENT) if up else share // _PERCENT
