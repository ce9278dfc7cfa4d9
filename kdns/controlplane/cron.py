"""Cron schedules: what is wrong with one, in the words of the parser that Kubernetes uses (robfig/cron, standard form).

Nothing runs CronJobs here, so a schedule is checked and not computed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORDS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_DURATION = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+")


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
        _check(re.sub(r"^(CRON_)?TZ=\S*\s*", "", text))
    except _ScheduleError as error:
        return [str(error)]
    return []


def _check(text: str) -> None:
    if not text:
        raise _ScheduleError("empty spec string")
    if text.startswith("@every "):
        duration = text.removeprefix("@every ")
        if not _DURATION.fullmatch(duration):
            raise _ScheduleError(f'failed to parse duration {text}: time: invalid duration "{duration}"')
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
