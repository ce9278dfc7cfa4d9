"""What is wrong with the Services of a cluster, found at most every few seconds, and only while somebody looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kdns.cluster.objects import Key
from kdns.cluster.packed import conditions_of
from kdns.cluster.readiness import nothing_ready
from kdns.cluster.state import State
from kdns.runtime.tasks import in_slices
from kdns.status.page import Advice
from kdns.status.services import service_link

EVERY_S: Final = 10.0
SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Problems by cause, and their texts by Service."""

    problems: Sequence[Advice] = ()
    by_service: Mapping[Key, Sequence[str]] = field(default_factory=dict)


class Diagnoses:
    """The last diagnosis of each cluster."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, Diagnosis]] = {}
        self._turns = asyncio.Lock()

    async def of(self, state: State, cluster: int = 0) -> Diagnosis:
        async with self._turns:
            at_s, known = self._last.get(cluster, (0.0, Diagnosis()))
            if not at_s or time.monotonic() - at_s > EVERY_S:
                known = await _diagnosis(state, cluster)
                self._last[cluster] = time.monotonic(), known
            return known


async def _diagnosis(state: State, cluster: int) -> Diagnosis:
    by_service: dict[Key, Sequence[str]] = {}
    async for service in in_slices([*state.services.values()]):
        if service.is_external_name:
            continue
        conditions = (one for each in state.slices_of(service.key) for one in conditions_of(each))
        if not any(one is None or one.ready is not False for one in conditions):
            by_service[service.key] = (nothing_ready(state, service).text,)
    if not by_service:
        return Diagnosis()
    links = [service_link(key, cluster) for key in sorted(by_service)]
    return Diagnosis((Advice("Services without a ready endpoint", "", links[:SHOWN]),), by_service)
