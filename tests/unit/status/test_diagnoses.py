"""How often problems are looked for, and what a page has meanwhile."""

import asyncio
from threading import Event

import pytest

from kdns.cluster.state import State
from kdns.status.io import diagnoses
from kdns.status.io.diagnoses import STILL, Diagnoses, Followed
from kdns.status.page import Advice
from kdns.status.problems import Diagnosis

CLUSTER = Followed(State())
FOUND = Diagnosis((Advice("it is idle"),))


async def test_they_are_looked_for_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def found(*arguments: object) -> Diagnosis:
        calls.append(arguments)
        return FOUND

    monkeypatch.setattr(diagnoses, "_found", found)
    known = Diagnoses()
    pages = await asyncio.gather(*(known.of(CLUSTER) for _ in range(3)), known.of(Followed(State(), number=1)))
    assert (pages, len(calls)) == ([FOUND] * 4, 2)
    assert await known.of(CLUSTER) is FOUND
    assert len(calls) == 2
    monkeypatch.setattr(diagnoses, "time", Later(diagnoses.EVERY_S * 1000))
    assert await known.of(CLUSTER) is FOUND
    assert len(calls) == 3


class Later:
    """A clock that is ahead."""

    def __init__(self, by_s: float) -> None:
        self._by_s = by_s

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() + self._by_s


async def test_a_page_does_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = Event()
    monkeypatch.setattr(diagnoses, "PATIENCE_S", 0.01)
    monkeypatch.setattr(diagnoses, "_found", lambda *_: FOUND if is_over.wait(10) else STILL)
    known = Diagnoses()
    assert await known.of(CLUSTER) is STILL
    is_over.set()
    monkeypatch.setattr(diagnoses, "PATIENCE_S", 60.0)
    assert await known.of(CLUSTER) is FOUND
    is_over.clear()
    monkeypatch.setattr(diagnoses, "PATIENCE_S", 0.01)
    for later_s, shown in ((0.0, FOUND), (diagnoses.EVERY_S * 1.5, FOUND), (diagnoses.OVERDUE_S * 10, STILL)):
        monkeypatch.setattr(diagnoses, "time", Later(later_s))
        assert await known.of(CLUSTER) is shown
    is_over.set()


async def test_a_defect_leaves_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*_: object) -> Diagnosis:
        raise KeyError("a defect")

    monkeypatch.setattr(diagnoses, "_found", found)
    (shown,) = (await Diagnoses().of(CLUSTER)).top
    assert shown.text == "Problems could not be looked for: the log has the reason."
