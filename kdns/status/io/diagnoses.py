"""What is wrong in a cluster, looked for in a thread, now and then, and only while somebody looks at a page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from kdns import logs
from kdns.cluster.objects import Object
from kdns.cluster.state import State
from kdns.runtime.process import gc_paused
from kdns.runtime.tasks import in_thread
from kdns.status.page import Advice
from kdns.status.problems import Diagnosis, diagnosis

DOMAIN: Final = "cluster.local"
EVERY_S: Final = 10.0
SHARE: Final = 0.05
"""The part of the time that may be spent on it."""
PATIENCE_S: Final = 2.0
"""How long a page waits for a new diagnosis; then it has the last one, unless that is long overdue."""
OVERDUE_S: Final = 60.0
STILL: Final = Diagnosis((Advice("Problems are still being looked for."),))

log = logs.get(__name__)


class Followed(NamedTuple):
    """A State, its cluster's domain and number, and whether only some objects of each kind are in it."""

    state: State
    domain: str = DOMAIN
    number: int = 0
    is_partial: bool = False


class Last(NamedTuple):
    """The last diagnosis, and when another one is due (monotonic)."""

    diagnosis: Diagnosis
    due_s: float


class Diagnoses:
    """The last diagnosis of each cluster."""

    def __init__(self) -> None:
        self._last: dict[int, Last] = {}
        self._looking: dict[int, asyncio.Task[None]] = {}

    async def of(self, followed: Followed) -> Diagnosis:
        number = followed.number
        last, now_s = self._last.get(number), time.monotonic()
        if last is None or now_s > last.due_s:
            if number not in self._looking:
                self._looking[number] = asyncio.create_task(self._look(followed), name="diagnosis")
            await asyncio.wait((self._looking[number],), timeout=PATIENCE_S)
            last = self._last.get(number)
        return last.diagnosis if last and last.due_s + OVERDUE_S > now_s else STILL

    async def _look(self, followed: Followed) -> None:
        state, begun_s = followed.state, time.monotonic()
        kinds = (state.services, state.slices, state.pods, state.namespaces, state.nodes, state.service_cidrs)
        objects: list[Object] = []
        for kind in kinds:
            objects += kind.values()
        synced = frozenset(state.synced)
        try:
            with gc_paused(lambda: False):  # a collection of what the thread makes would hold the loop
                found = await in_thread(lambda: _found(objects, synced, followed))
        except Exception as error:  # a task's boundary: the page has other parts
            log.exception("problems not found", reason=str(error))
            found = Diagnosis((Advice("Problems could not be looked for: the log has the reason."),))
        took_s = time.monotonic() - begun_s
        self._last[followed.number] = Last(found, begun_s + max(EVERY_S, took_s / SHARE))
        del self._looking[followed.number]


def _found(objects: Sequence[Object], synced: frozenset[type[Object]], followed: Followed) -> Diagnosis:
    """By a State of its own, since the loop goes on to change the other one."""
    from kdns.diagnosis.rules import problems  # noqa: PLC0415 - few servers have a page
    from kdns.diagnosis.view import ClusterView  # noqa: PLC0415 - the same

    found = problems(ClusterView.holding(objects, synced, domain=followed.domain))
    return diagnosis(found, followed.number, is_partial=followed.is_partial)
