"""Cron schedules: what is wrong with one, in the words of the parser that Kubernetes uses (robfig/cron, standard form).

Nothing runs CronJobs here, so a schedule is checked and not computed. Time zones are those of the machine or of tzdata.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from zoneinfo import ZoneInfo

_WORDS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_UNITS = frozenset({"ns", "us", "µs", "μs", "ms", "s", "m", "h"})
_AMOUNT = re.compile(r"(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)(?P<unit>[^0-9.]*)")


@dataclass(frozen=True, slots=True)
class _Bounds:
    low: int
    high: int
    names: dict[str, int]


_FIELDS = (
    _Bounds(0, 59, {}),
    _Bounds(0, 23, {}),
    _Bounds(1, 31, {}),
    _Bounds(1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Bounds(0, 6, {name: number for number, name in enumerate(_DAYS)}),
)


class _ScheduleError(ValueError):
    """A schedule that cannot be read."""


def schedule_problems(text: str) -> list[str]:
    """What is wrong with a schedule; nothing if it can be read."""
    try:
        _check(_without_zone(text))
    except _ScheduleError as error:
        return [str(error)]
    return []


def known_zone(name: str) -> bool:
    """Whether there is a time zone of this name."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no such file, no zone in it, a folder
        return False
    return True


def _without_zone(text: str) -> str:
    if not text.startswith(("TZ=", "CRON_TZ=")):
        return text
    zone, _, rest = text.partition("=")[2].partition(" ")
    if not known_zone(zone):
        raise _ScheduleError(f"provided bad location {zone}: unknown time zone {zone}")
    return rest.strip()


def _check(text: str) -> None:
    if not text:
        raise _ScheduleError("empty spec string")
    if text.startswith("@every "):
        if problem := _duration_problem(text.removeprefix("@every ")):
            raise _ScheduleError(f"failed to parse duration {text}: time: {problem}")
        return
    if text.startswith("@"):
        if text not in _WORDS:
            raise _ScheduleError(f"unrecognized descriptor: {text}")
        return
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise _ScheduleError(f"expected exactly {len(_FIELDS)} fields, found {len(parts)}: [{' '.join(parts)}]")
    for part, bounds in zip(parts, _FIELDS, strict=True):
        for expression in filter(None, part.split(",")):
            _check_range(expression, bounds)


def _duration_problem(text: str) -> str:
    """What Go's time.ParseDuration says of a text; nothing for a duration such as 1h30m or 0."""
    rest = text[1:] if text[:1] in {"+", "-"} else text
    if rest == "0":
        return ""
    while found := _AMOUNT.match(rest):
        if not found["unit"]:
            return f'missing unit in duration "{text}"'
        if found["unit"] not in _UNITS:
            return f'unknown unit "{found["unit"]}" in duration "{text}"'
        rest = rest[found.end() :]
        if not rest:
            return ""
    return f'invalid duration "{text}"'


def _check_range(expression: str, bounds: _Bounds) -> None:
    extent, *steps = expression.split("/")
    ends = extent.split("-")
    if ends[0] in {"*", "?"}:
        low, high = bounds.low, bounds.high
    else:
        low = high = _number(ends[0], bounds)
        match ends[1:]:
            case []:
                high = bounds.high if steps else low
            case [last]:
                high = _number(last, bounds)
            case _:
                raise _ScheduleError(f"too many hyphens: {expression}")
    if len(steps) > 1:
        raise _ScheduleError(f"too many slashes: {expression}")
    step = _integer(steps[0]) if steps else 1
    if low < bounds.low:
        raise _ScheduleError(f"beginning of range ({low}) below minimum ({bounds.low}): {expression}")
    if high > bounds.high:
        raise _ScheduleError(f"end of range ({high}) above maximum ({bounds.high}): {expression}")
    if low > high:
        raise _ScheduleError(f"beginning of range ({low}) beyond end of range ({high}): {expression}")
    if step == 0:
        raise _ScheduleError(f"step of range should be a positive number: {expression}")


def _number(text: str, bounds: _Bounds) -> int:
    named = bounds.names.get(text.lower())
    return _integer(text) if named is None else named


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text, re.ASCII):
        raise _ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    if int(text) < 0:
        raise _ScheduleError(f"negative number ({int(text)}) not allowed: {text}")
    return int(text)
