"""Which Services it is for that the kernel refuses a plan: found by halves, so that the others need not wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Final, TypeAlias

from kdns.cluster.objects import Key

MOST_QUESTIONS: Final = 1000

Ask: TypeAlias = Callable[[Sequence[Key]], Awaitable[str]]
"""Why the kernel would refuse the rules of these Services and no others, "" if it would take them."""


async def refused(ask: Ask, suspects: Sequence[Key]) -> dict[Key, str]:
    """The Services among `suspects` that the kernel refuses, each with the reason.

    None where it refuses even rules for no Service: then it is not for one of them. The largest group is divided
    first, and after `MOST_QUESTIONS` groups stay as they are: 10,000 Services of which 50 are refused take 900.
    """
    if not suspects or await ask(()):
        return {}
    order = count()
    groups: list[tuple[int, int, Sequence[Key], str]] = []

    async def look(group: Sequence[Key]) -> None:
        reason = await ask(group)
        if reason:
            heappush(groups, (-len(group), next(order), group, reason))

    await look(suspects)
    for _ in range(MOST_QUESTIONS // 2):
        if not groups or len(groups[0][2]) == 1:
            break
        _, _, group, _ = heappop(groups)
        half = len(group) // 2
        await look(group[:half])
        await look(group[half:])
    return {key: reason for _, _, group, reason in groups for key in group}
