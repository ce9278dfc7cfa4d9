"""Go's text form of durations (time.ParseDuration, Duration.String): 30s, 1h0m0s, 1.5m, -250ms, and 0."""

from __future__ import annotations

import re
from typing import Final

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([^\d.]*)", re.ASCII)
_MAX_NS: Final = (1 << 63) - 1
"""Go's longest duration, about 292 years."""
_MAX_CHARS: Final = 4000
_QUOTED_CHARS: Final = 200


class DurationRangeError(ValueError):
    """A duration of more than 292 years."""


def parse_duration(text: str) -> float:
    """In seconds. Raises ValueError with Go's message for text that is not a duration."""
    unsigned = text[1:] if text[:1] in {"-", "+"} else text
    if unsigned == "0":
        return 0.0
    total_ns, scale, rest = 0, 1, unsigned if len(text) <= _MAX_CHARS else ""
    if not rest:
        raise ValueError(f"time: invalid duration {_quoted(text)}")
    while rest:
        part = _PART.match(rest)
        if part is None:
            raise ValueError(f"time: invalid duration {_quoted(text)}")
        number, unit = part.groups()
        if not unit:
            raise ValueError(f"time: missing unit in duration {_quoted(text)}")
        if unit not in _NANOSECONDS:
            raise ValueError(f"time: unknown unit {_quoted(unit)} in duration {_quoted(text)}")
        whole, _, decimals = number.partition(".")
        part_ns, part_scale = int(f"0{whole}{decimals}") * _NANOSECONDS[unit], 10 ** len(decimals)
        total_ns, scale = total_ns * part_scale + part_ns * scale, scale * part_scale
        rest = rest[part.end() :]
    if total_ns > _MAX_NS * scale:
        raise DurationRangeError(f"time: invalid duration {_quoted(text)}")
    return total_ns / scale / 1e9 * (-1 if text.startswith("-") else 1)


def format_duration(seconds: float) -> str:
    """As Go prints it: 24h0m0s, 1.5s, 250ms."""
    total_ns = round(abs(seconds) * 10**9)
    sign = "-" if seconds < 0 and total_ns else ""
    if total_ns == 0:
        return "0s"
    if total_ns < 10**9:
        unit = next(unit for unit in ("ms", "µs", "ns") if total_ns >= _NANOSECONDS[unit])
        return sign + _decimal(total_ns, _NANOSECONDS[unit]) + unit
    minutes, rest_ns = divmod(total_ns, _NANOSECONDS["m"])
    hours, minutes_left = divmod(minutes, 60)
    above = f"{hours}h{minutes_left}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{above}{_decimal(rest_ns, 10**9)}s"


def _decimal(number: int, unit: int) -> str:
    whole, rest = divmod(number, unit)
    return f"{whole}.{rest * 10**9 // unit:09d}".rstrip("0").rstrip(".") if rest else str(whole)


def _quoted(text: str) -> str:
    return f'"{text[:_QUOTED_CHARS]}"'
