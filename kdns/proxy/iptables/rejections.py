"""Which Services the kernel rejects a plan for: found by bisection, so that all others are served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from kdns.cluster.objects import Key

MAX_GROUP: Final = 256
"""Services that are checked together at most. So a Service is checked nine times at most."""

Check: TypeAlias = Callable[[Sequence[Key]], Awaitable[str]]
"""Why the kernel would reject a plan of these Services and no others, "" if it would not."""


class Decisions(NamedTuple):
    """The Services that the kernel would accept, and those that it rejects, each with the reason."""

    accepted: list[Key]
    rejected: dict[Key, str]


class RejectionSearch:
    """Services that are suspected, until it is decided which of them the kernel rejects.

    The smaller group is checked first, so that the first Services are accepted after a few checks.
    """

    def __init__(self) -> None:
        self._groups: list[Sequence[Key]] = []

    @property
    def undecided(self) -> set[Key]:
        """The Services that are still to be checked."""
        return set(chain.from_iterable(self._groups))

    def add(self, suspects: Iterable[Key]) -> None:
        """Suspect these Services too."""
        undecided = self.undecided
        new = [key for key in suspects if key not in undecided]
        self._groups += [new[start : start + MAX_GROUP] for start in range(0, len(new), MAX_GROUP)]

    async def decide(self, check: Check, is_over: Callable[[], bool]) -> Decisions:
        """Checks until everything is decided or `is_over`; the decisions since the call before."""
        accepted: list[Key] = []
        rejected: dict[Key, str] = {}
        while self._groups and not is_over():
            group = self._groups[-1]
            reason = await check(group)
            self._groups.pop()
            if not reason:
                accepted += group
            elif len(group) == 1:
                rejected[group[0]] = reason
            else:
                middle = len(group) // 2
                self._groups += [group[middle:], group[:middle]]
        return Decisions(accepted, rejected)
