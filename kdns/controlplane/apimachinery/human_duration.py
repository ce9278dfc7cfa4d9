"""Durations as kubectl prints them, in one or two units: 5s, 2m30s, 5d2h, 2y10d."""

from __future__ import annotations

from datetime import datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR_DAYS = 365


def human_duration(seconds: float) -> str:
    """One or two units (apimachinery: duration.HumanDuration).

    Above -2 s it is zero, since clocks differ; below, `<invalid>`.
    """
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole == -1 else "<invalid>"
    minutes, hours, days = whole // _MINUTE, whole // _HOUR, whole // _DAY
    if minutes < 2:
        return f"{whole}s"
    if minutes < 10:
        return _pair(minutes, "m", whole % _MINUTE, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    years = days // _YEAR_DAYS
    if years < 2:
        return f"{days}d"
    return _pair(years, "y", days % _YEAR_DAYS if years < 8 else 0, "d")


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def since(timestamp: str | None, now_s: float) -> str:
    """Age of an RFC 3339 timestamp; `<unknown>` if it is missing or malformed."""
    moment = seconds_of(timestamp)
    return "<unknown>" if moment is None else human_duration(now_s - moment)


def seconds_of(timestamp: str | None) -> float | None:
    """Unix time of an RFC 3339 timestamp; None if it is missing or malformed."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() if timestamp else None
    except ValueError:
        return None
