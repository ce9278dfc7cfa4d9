"""What the allocators and repair loops did since start: plain numbers that /metrics reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

Labels: TypeAlias = tuple[str, ...]


def _no_clock() -> float:
    return 0.0


def _nobody(_cidr: str, _took_s: float) -> None:
    pass


@dataclass(slots=True)
class Tally:
    """Addresses are counted by (range, scope), ports by scope: static if asked for, else dynamic; repairs by type.

    `took` hears how long each address of a range took to find, in seconds of `clock`.
    """

    clock: Callable[[], float] = _no_clock
    took: Callable[[str, float], None] = _nobody
    addresses: Counter[Labels] = field(default_factory=Counter)
    address_errors: Counter[Labels] = field(default_factory=Counter)
    ports: Counter[Labels] = field(default_factory=Counter)
    port_errors: Counter[Labels] = field(default_factory=Counter)
    address_repairs: Counter[Labels] = field(default_factory=Counter)
    port_repairs: Counter[Labels] = field(default_factory=Counter)
    failed_address_repairs: int = 0
    failed_port_repairs: int = 0
