"""Lines as points of an SVG drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Final

from kdns.status.history import Line

WIDTH: Final = 600
HEIGHT: Final = 120
LINES: Final = 6
"""The most lines of a plot; styles tell so many apart."""
_STEPS: Final = (1, 2, 5, 10)


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot of rates: the value at its top, and for each line its name, its last rate and its points."""

    title: str
    top: float
    lines: tuple[tuple[str, float, str], ...]


def plot(title: str, lines: Sequence[Line]) -> Plot:
    """Of the first lines, with zero at its bottom."""
    shown = [line for line in lines if any(line.rates)][:LINES]
    top = round_up(max((max(line.rates) for line in shown), default=0.0))
    return Plot(title, top, tuple((line.name, line.last, _points(line.rates, top)) for line in shown))


def round_up(value: float) -> float:
    """The smallest of …, 1, 2, 5, 10, 20, … that is at least the value; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in _STEPS if step * power >= value)


def _points(rates: Sequence[float], top: float) -> str:
    step = WIDTH / max(len(rates) - 1, 1)
    return " ".join(f"{number * step:.1f},{HEIGHT * (1 - rate / top):.1f}" for number, rate in enumerate(rates))
