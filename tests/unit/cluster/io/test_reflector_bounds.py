"""What an API sends without end is bounded, and what it sends at once leaves the loop to others."""

import asyncio
import itertools
import json
import re
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest
from list_pages import decode_list
from reflected import ScriptedApi, reflect
from structlog.testing import capture_logs

from kdns.cluster import memory
from kdns.cluster.io import pager
from kdns.cluster.io.reflector import WatchStats
from kdns.cluster.objects import Service
from kdns.cluster.state import Change, State
from kdns.cluster.watch import RESOURCES, Timing
from kdns.runtime import tasks

PAGE_OBJECTS, OBJECTS, PAGES = 3, 30, 20


def service(number: int) -> dict[str, object]:
    metadata = {"name": f"s{number}", "namespace": "x", "resourceVersion": str(number)}
    return {"kind": "Service", "apiVersion": "v1", "metadata": metadata}


def events(numbers: range) -> bytes:
    return b"".join(json.dumps({"type": "ADDED", "object": service(number)}).encode() + b"\n" for number in numbers)


class Api(ScriptedApi):
    """Lists of pages, and watches of one chunk each. `resumed` has the resourceVersion of each watch."""

    def __init__(self, pages: Iterator[tuple[list[dict[str, object]], str]], chunks: list[bytes]) -> None:
        self.pages, self.watched = pages, chunks
        self.resumed: list[str] = []

    async def page(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        assert path
        assert params
        items, token = next(self.pages)
        metadata = {"resourceVersion": "100" if self.resumed else "5", "continue": token}
        yield json.dumps({"kind": "ServiceList", "apiVersion": "v1", "metadata": metadata, "items": items}).encode()

    async def watch(self, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        self.resumed.append(params["resourceVersion"])
        yield self.watched.pop(0)


async def follow(
    api: Api, state: State, changed: Callable[[list[Change]], None], rounds: int, stats: WatchStats | None = None
) -> list[float]:
    """Follow for some rounds; the seconds that were waited after each."""
    waits: list[float] = []
    is_over = asyncio.Event()

    async def sleep(wait_s: float) -> None:
        waits.append(wait_s)
        if len(waits) == rounds:
            is_over.set()
            await asyncio.Event().wait()

    await reflect(api, state, changed, is_over, stats=stats, sleep=sleep)
    return waits


def endless(of_page: Callable[[int], list[dict[str, object]]]) -> Iterator[tuple[list[dict[str, object]], str]]:
    return ((of_page(number), f"after {number}") for number in itertools.count())


@pytest.mark.parametrize(
    ("pages", "objects", "bound"),
    [
        (lambda page: [service(page * PAGE_OBJECTS + index) for index in range(PAGE_OBJECTS)], OBJECTS, "30 objects"),
        (lambda _: [service(index) for index in range(PAGE_OBJECTS)], PAGE_OBJECTS, "30 objects"),
        (lambda _: [], 0, "20 pages"),
    ],
    ids=["new names", "the same names", "empty pages"],
)
async def test_a_list_without_end(
    monkeypatch: pytest.MonkeyPatch, pages: Callable[[int], list[dict[str, object]]], objects: int, bound: str
) -> None:
    """It ends at the bound, is said so, and is tried again later; further lists add nothing."""
    monkeypatch.setattr(pager, "OBJECTS_MAX", OBJECTS)
    monkeypatch.setattr(pager, "PAGES_MAX", PAGES)
    state = State()
    with capture_logs() as logs:
        waits = await follow(Api(endless(pages), []), state, lambda _: None, rounds=3)
    assert waits == [Timing().backoff_cap_s] * 3
    assert len(state.services) == objects
    assert Service not in state.synced
    reason = (
        f"GET /api/v1/services: more than {bound}; kdns stops there because the list seems endless. Check that the "
        "server is a Kubernetes API, and that no proxy in front of it drops the parameter continue"
    )
    assert [entry["reason"] for entry in logs if entry["event"] == "new list needed"] == [reason] * 3


async def test_a_watch_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pager, "OBJECTS_MAX", OBJECTS)
    state = State()
    api = Api(iter([([], "")]), [events(range(6, 100))])
    assert await follow(api, state, lambda _: None, rounds=1) == [Timing().backoff_cap_s]
    assert len(state.services) == OBJECTS


def large(number: int) -> dict[str, object]:
    ports = [{"port": port} for port in range(1, 100)]
    return service(number) | {"spec": {"ports": ports, "externalName": f"large{number}"}}


async def test_more_than_fits_is_dropped_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fits is kept; a list with smaller versions, or without the large objects, makes room for the others."""
    monkeypatch.setattr(memory, "STATE_MAX_BYTES", 100_000)
    api = Api(iter([([large(index) for index in range(40)], ""), ([service(index) for index in range(60)], "")]), [b""])
    state, stats, kept = State(), WatchStats(), list[int]()

    def changed(_: list[Change]) -> None:
        kept.append(state.memory_bytes)

    with capture_logs() as logs:
        waits = await follow(api, state, changed, 1, stats)
        first, dropped = set(state.services), stats.dropped
        assert Service in state.synced
        await follow(api, state, changed, 1, stats)
    assert waits == [Timing().backoff_cap_s]
    assert 0 < len(first) < 40
    assert len(first) + dropped == 40
    assert max(kept) <= 100_000
    assert set(state.services) == {("x", f"s{number}") for number in range(60)}
    (reason,) = [entry["reason"] for entry in logs if entry["event"] == "new list needed" and entry["cause"] == "full"]
    assert reason.startswith(f"{dropped} dropped: kdns keeps at most 250000 objects of a kind, and 0 MiB of all kinds")
    assert stats.errors == {"full": 1}
    assert stats.dropped == 0


async def test_a_watch_beyond_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed object counts as a new one does; a deleted one makes room, and an unchanged one stays."""
    monkeypatch.setattr(memory, "STATE_MAX_BYTES", 20_000)
    numbers = range(9, 14)  # the versions too, which are later than the list's
    watched = b"".join(json.dumps({"type": "MODIFIED", "object": large(number)}).encode() + b"\n" for number in numbers)
    api = Api(iter([([service(number) for number in numbers], "")]), [watched])
    state, stats = State(), WatchStats()
    assert await follow(api, state, lambda _: None, 1, stats) == [Timing().backoff_cap_s]
    assert state.memory_bytes <= 20_000
    assert 0 < sum(bool(each.spec.external_name) for each in state.services.values()) < 5
    assert stats.dropped == 1


async def test_objects_and_events_are_applied_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have a turn between two slices, the order is kept, and a watch resumes behind its last event."""
    monkeypatch.setattr(tasks, "SLICE_S", 0.0)
    turns, seen = 0, list[tuple[int, list[str]]]()

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def changed(changes: list[Change]) -> None:
        if changes:
            seen.append((turns, [change.key[1] for change in changes]))

    task = asyncio.create_task(others())
    api = Api(
        iter([([service(index) for index in range(5)], ""), ([], "")]), [events(range(6, 20)), events(range(20, 30))]
    )
    await follow(api, State(), changed, rounds=2)
    task.cancel()
    assert [names for _, names in seen] == [[f"s{number}"] for number in (*range(5), *range(6, 30))]
    assert len({turn for turn, _ in seen}) == len(seen)
    assert api.resumed == ["5", "19"]


def test_a_list_without_end_leaves_half_of_the_memory_of_a_pod() -> None:
    """As much again is for answers, and for the process itself."""
    limit = re.search(r"limits:\s+memory: (\d+)Mi", Path("deploy/deployment.yaml").read_text())
    assert limit
    state, many = State(), 2000
    items = [service(index) | {"spec": {"clusterIP": f"10.0.{index >> 8}.{index & 255}"}} for index in range(many)]
    body = json.dumps({"kind": "ServiceList", "apiVersion": "v1", "metadata": {}, "items": items}).encode()
    (resource,) = (each for each in RESOURCES.values() if each.kind is Service)
    tracemalloc.start()
    try:
        for obj in decode_list(resource, body).objects:
            state.upsert(obj)
        of_one = tracemalloc.get_traced_memory()[0] / many
    finally:
        tracemalloc.stop()
    assert of_one * pager.OBJECTS_MAX < int(limit[1]) * 1024 * 1024 / 2, of_one
