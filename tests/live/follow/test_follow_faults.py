"""Any sequence of changes and faults ends with a State equal to the server's, and never loses what was not deleted."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from fake_api import TYPES, Cluster, Json, RefusedError, expired, line, refuse_initial_events, service, until
from hypothesis import given, settings
from hypothesis import strategies as st
from reflected import reflect
from structlog.testing import capture_logs

from kdns.cluster.io.reflector import WatchStats
from kdns.cluster.objects import Key
from kdns.cluster.state import Change, State
from kdns.cluster.watch import Timing
from kdns.errors import ApiServerError


@dataclass
class MemoryApi:
    """What a reflector asks, answered by a Cluster without sockets. `faults` are met one by one, in lists and watches.

    A watch gives its events in chunks that end anywhere.
    """

    cluster: Cluster
    chunk_bytes: int
    faults: deque[str] = field(default_factory=deque)
    streams: bool = False
    server: str = "memory"

    def _fault(self) -> str:
        return self.faults.popleft() if self.faults else ""

    def _failed(self, error: RefusedError) -> ApiServerError:
        return ApiServerError(self.server, error.message, error.code)

    async def page(self, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        await asyncio.sleep(0)
        match self._fault():
            case "error":
                raise ApiServerError(self.server, "internal", 500)
            case "drop":
                raise ApiServerError(self.server, "connection reset")
            case "nonsense":
                yield b'{"metadata":'
                return
        try:
            yield json.dumps(self.cluster.page("services", dict(params))).encode()
        except RefusedError as error:
            raise self._failed(error) from error

    @asynccontextmanager
    async def stream(self, _path: str, params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        if "watch" not in params:
            yield self.page(params)
            return
        if not self.streams:
            refuse_initial_events(params)
        await asyncio.sleep(0)
        if self._fault() == "error":
            raise ApiServerError(self.server, "internal", 500)
        if "sendInitialEvents" in params:
            yield self._chunks(self.cluster.version, list(self.cluster.initial_events("services")))
            return
        at = int(params["resourceVersion"])
        try:
            list(self.cluster.events("services", at))
        except RefusedError as error:
            raise self._failed(error) from error
        yield self._chunks(at, [])

    async def _chunks(self, at: int, initial: list[tuple[int, Json]]) -> AsyncIterator[bytes]:
        while True:
            changed = self.cluster.changed
            try:
                told, initial = [*initial, *self.cluster.events("services", at)], []
            except RefusedError:
                yield line({"type": "ERROR", "object": expired().status})
                return
            raw = b"".join(line(event) for _, event in told)
            fault = self._fault()
            if fault == "bookmark":
                at = max([at, *(version for version, _ in told)])
                raw += line(
                    {"type": "BOOKMARK", "object": TYPES["services"] | {"metadata": {"resourceVersion": str(at)}}}
                )
            if fault in {"drop", "half"}:
                raw = raw[: len(raw) // 2]
            for start in range(0, len(raw), self.chunk_bytes):
                yield raw[start : start + self.chunk_bytes]
            match fault:
                case "drop":
                    raise ApiServerError(self.server, "connection reset")
                case "half":
                    return
                case "nonsense":
                    yield b"nonsense\n"
                case "error":
                    yield line({"type": "ERROR", "object": {"code": 500, "message": "etcd"}})
            at = max([at, *(version for version, _ in told)])
            await changed.wait()


NAMES = st.sampled_from("abcdefgh")
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES, st.integers(1, 3)),
    st.tuples(st.just("delete"), NAMES, st.just(0)),
    st.tuples(st.sampled_from(["drop", "half", "nonsense", "error", "bookmark", ""]), st.just(""), st.just(0)),
    st.tuples(st.just("compact"), st.just(""), st.just(0)),
    st.tuples(st.just("wake"), st.just(""), st.integers(0, 5)),
)


async def _play(steps: list[tuple[str, str, int]], chunk_bytes: int, *, streams: bool) -> None:
    cluster, state, batches = Cluster(), State(), list[list[Change]]()
    deleted: set[Key] = set()
    for name in "abc":
        cluster.put("services", service(name, "10.0.0.1"))
    api = MemoryApi(cluster, chunk_bytes, streams=streams)

    def on_change(changes: list[Change]) -> None:
        batches.append(changes)
        for change in changes:
            assert change.new is not None or change.key in deleted, f"{change.key} was lost"
            assert change.old != change.new

    stats, is_over = WatchStats(), asyncio.Event()
    timing = Timing(page_objects=2)
    following = asyncio.create_task(reflect(api, state, on_change, is_over, stats=stats, timing=timing, fraction=0.5))
    for what, name, number in steps:
        match what:
            case "put":
                cluster.put("services", service(name, f"10.0.0.{number}"))
            case "delete":
                deleted.add(("default", name))
                cluster.delete("services", ("default", name))
            case "compact":
                cluster.compact()
            case "wake":
                cluster.wake()
                for _ in range(number):
                    await asyncio.sleep(0)
            case fault:
                api.faults.append(fault)
    api.faults.clear()
    cluster.wake()
    await until(lambda: cluster.holds(state))
    assert not stats.errors["internal"]
    is_over.set()
    await following


@settings(max_examples=4 * settings().max_examples)
@given(st.lists(STEPS, max_size=40), st.sampled_from([1, 7, 100, 10_000]), st.booleans())
def test_any_sequence_of_changes_and_faults_ends_in_agreement(
    steps: list[tuple[str, str, int]], chunk_bytes: int, streams: bool
) -> None:
    with capture_logs() as logs:
        asyncio.run(_play(steps, chunk_bytes, streams=streams))
    assert not [entry for entry in logs if entry["log_level"] == "error"]


@pytest.mark.parametrize(
    ("faults", "waits_s"),
    [
        pytest.param(["", "drop"], [0.0], id="the first drop is resumed at once"),
        pytest.param(["", "half"], [0.0], id="so is a watch that the server ends"),
        pytest.param(["drop"], [0.4], id="a failing list waits"),
        pytest.param(["drop", "error", "nonsense"], [0.4, 0.8, 0.8], id="waits grow, nonsense is one step behind"),
        pytest.param(["drop"] * 8, [0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 15.0], id="up to the cap"),
    ],
)
async def test_how_long_is_waited(faults: list[str], waits_s: list[float]) -> None:
    """With a jitter that is always half of the most."""
    assert await _waits_s(["", *faults] if faults[0] == "" else faults, len(waits_s)) == pytest.approx(waits_s)


async def test_a_new_list_does_not_wait_for_an_outage_that_is_over() -> None:
    """The third failure is the last: the server is back, but does not know the version any more."""
    assert await _waits_s(["", "", "drop", "drop", "drop"], 4, compact_at=3) == pytest.approx([0.0, 0.8, 1.6, 0.0])


async def _waits_s(faults: list[str], count: int, *, compact_at: int = 0) -> list[float]:
    """The first `count` waits of a reflector; before its wait number `compact_at` ends, the server forgets versions."""
    cluster, waited_s = Cluster(), list[float]()
    cluster.put("services", service("a"))
    api = MemoryApi(cluster, 100, deque(faults))
    enough = asyncio.Event()

    async def wait(wait_s: float) -> None:
        waited_s.append(wait_s)
        if len(waited_s) == compact_at:
            cluster.put("services", service("b"))
            cluster.compact()
        if len(waited_s) == count:
            enough.set()
            await asyncio.Event().wait()

    await reflect(api, State(), lambda _: None, enough, timing=Timing(), fraction=0.5, sleep=wait)
    return waited_s
