"""The loop that carries plans into the kernel: what is applied when, and what happens when the kernel refuses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from kdns.aio import dataplane as module
from kdns.aio import refusals as module_refusals
from kdns.aio.dataplane import Dataplane, Situation, Synced, SyncTiming
from kdns.cluster.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Key,
    Meta,
    Node,
    NodeMeta,
    Service,
    ServiceCIDR,
    ServiceCIDRSpec,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    SliceAnnotations,
    SliceLabels,
    SliceMeta,
)
from kdns.cluster.state import State
from kdns.errors import ApplyError
from kdns.proxy.config import Family, NodeView, ProxyConfig
from kdns.proxy.plan import FrontKey, Plan
from kdns.proxy.planner import Difference

DEADLINE_S = 60.0
VIEW = NodeView("here", "", (ip_address("192.0.2.1"),), (ip_address("192.0.2.1"),))


class Kernel:
    """A backend that notes what it is asked for; `refusals` are the reasons of the next ones.

    It takes no rules for the addresses of `poison`, and tidies up in as many steps as there are `leftovers`.
    """

    name = "fake"

    def __init__(self) -> None:
        self.did: list[str] = []
        self.refusals: list[str] = []
        self.poison: set[str] = set()
        self.leftovers = 0
        self.fronts: set[FrontKey] = set()
        self.busy = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    @property
    def rules(self) -> list[str]:
        """What was to be done with rules."""
        return [what for what in self.did if what in ("establish", "follow")]

    async def establish(self, plan: Plan) -> None:
        await self._do("establish", set(plan.ipv4.fronts))

    async def follow(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        assert any(differences.values())
        await self._do("follow", set(plan.ipv4.fronts))

    async def tidy(self) -> bool:
        await self._do("tidy", self.fronts)
        self.leftovers -= 1
        return self.leftovers > 0

    async def refusal(self, plan: Plan) -> str:
        self.did.append(f"ask {len(plan.ipv4.fronts)}")
        found = {front.address for front in plan.ipv4.fronts} & self.poison
        return f"bad: {sorted(found)}" if found else ""

    async def _do(self, what: str, fronts: set[FrontKey]) -> None:
        self.did.append(what)
        self.busy.set()
        await self.go_on.wait()
        if self.refusals:
            raise ApplyError(("nft",), self.refusals.pop(0))
        if found := {front.address for front in fronts} & self.poison:
            raise ApplyError(("nft",), f"bad: {sorted(found)}")
        self.fronts = fronts


def service(number: int) -> Service:
    spec = ServiceSpec(cluster_ip=f"10.96.0.{number}", ports=(ServicePort(80, "p"),))
    return Service(ServiceMeta(f"s{number}", "d"), spec)


def endpoint_slice(number: int, *addresses: str, when: str = "") -> EndpointSlice:
    meta = SliceMeta(f"s{number}-1", "d", SliceLabels(f"s{number}"), SliceAnnotations(when) if when else None)
    return EndpointSlice(meta, "IPv4", tuple(Endpoint((each,)) for each in addresses), (EndpointPort("p", 8080),))


class Rig:
    """A dataplane on a fake kernel, with one Service."""

    def __init__(self, **timing: float) -> None:
        self.state, self.kernel = State(), Kernel()
        self.situation: Situation | None = (VIEW, ProxyConfig())
        self.synced: list[Synced] = []
        self.clock_s = 0.0
        self.plane = Dataplane(
            self.state,
            self.kernel,
            lambda: self.situation,
            SyncTiming(**{"min_sync_s": 0.0, "sync_s": 0.05} | timing),
            now_s=lambda: time.monotonic() + self.clock_s,
        )
        self.plane.followers.append(self.synced.append)

    def put(self, *objects: Service | EndpointSlice | Node | ServiceCIDR) -> None:
        self.plane.changed([change for each in objects if (change := self.state.upsert(each))])

    def list_all(self) -> None:
        self.put(service(1), endpoint_slice(1, "10.1.0.2"))
        self.state.synced |= {Service, EndpointSlice}
        self.plane.changed([])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Rig]:
        task = asyncio.create_task(self.plane.run())
        try:
            yield self
        finally:
            self.kernel.go_on.set()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def until(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not wanted():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.001)

    def has(self, *numbers: int) -> bool:
        return {key.address for key in self.kernel.fronts} == {f"10.96.0.{number}" for number in numbers}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(module, "TIDY_AFTER_S", 0.01)


async def test_nothing_is_applied_before_everything_has_been_listed_and_the_node_is_known() -> None:
    rig = Rig()
    rig.situation = None
    async with rig.running():
        rig.put(service(1))
        rig.plane.distrust("by somebody")  # what is there from before stays until we know better
        await asyncio.sleep(0.02)
        rig.list_all()
        await asyncio.sleep(0.02)
        assert rig.kernel.did == []
        assert rig.plane.stats.oldest_pending_s is None
        rig.situation = (VIEW, ProxyConfig())
        rig.plane.look()
        await rig.until(lambda: rig.has(1))
        assert rig.kernel.did == ["establish"]
        assert rig.synced[0].differences is None


async def test_changes_are_gathered_and_what_is_left_over_is_tidied() -> None:
    rig = Rig(min_sync_s=0.05)
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.kernel.leftovers = 2
        for number in (2, 3, 4):
            rig.put(service(number))
        await rig.until(lambda: rig.has(1, 2, 3, 4))
        await rig.until(lambda: rig.kernel.did == ["establish", "follow", "tidy", "tidy"])
        assert set(rig.synced[1].services) == {("d", f"s{number}") for number in (2, 3, 4)}
        stats = rig.plane.stats
        assert (stats.services.pending, stats.services.total, stats.oldest_pending_s) == (0, 4, None)
        rig.put(endpoint_slice(9, "10.1.0.9"))  # of no Service
        await rig.until(lambda: stats.endpoints.pending == 0)
        assert rig.kernel.did[4:] == []


@pytest.mark.parametrize("at", ["establish", "follow"])
async def test_what_is_refused_is_tried_again_from_scratch_with_what_came_meanwhile(at: str) -> None:
    rig = Rig()
    async with rig.running():
        if at == "follow":
            rig.list_all()
            await rig.until(lambda: rig.has(1))
        rig.kernel.refusals = ["busy", "busy"]
        rig.kernel.go_on.clear()
        rig.kernel.busy.clear()
        if at == "follow":
            rig.put(service(2))
        else:
            rig.list_all()
        await rig.kernel.busy.wait()
        rig.put(service(3))
        rig.kernel.go_on.set()
        await rig.until(lambda: rig.plane.stats.failures > 0)
        await rig.until(lambda: rig.has(1, 3) or rig.has(1, 2, 3))
        assert rig.plane.stats.failures == 2
        assert rig.plane.stats.oldest_pending_s is None
        assert rig.plane.stats.services.pending == 0
        assert rig.kernel.rules[-2:] == ["establish", "establish"]


async def test_a_failure_keeps_the_time_of_the_oldest_change() -> None:
    rig = Rig(sync_s=30.0)
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.kernel.refusals = ["busy"] * 100
        rig.put(service(2))
        since_s = rig.plane.stats.oldest_pending_s
        assert since_s is not None
        await rig.until(lambda: rig.plane.stats.failures > 2)
        rig.put(service(3))
        await rig.until(lambda: rig.plane.stats.failures > 4)
        assert rig.plane.stats.oldest_pending_s == since_s


async def test_after_a_failure_the_next_change_does_not_wait_for_the_next_try() -> None:
    rig = Rig(sync_s=3600.0)
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        for number in range(2, 30):  # the tries are minutes apart by now
            rig.kernel.refusals = ["busy"]
            rig.put(service(number))
            await rig.until(lambda number=number: rig.plane.stats.failures == number - 1)  # type: ignore[misc]
        rig.put(service(30))
        await rig.until(lambda: rig.has(*range(1, 31)))


async def test_what_fails_once_everything_is_due_anew_is_not_tried_all_the_time() -> None:
    rig = Rig(sync_s=3600.0)
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.kernel.refusals = ["busy"] * 8
        rig.clock_s = module.FULL_EVERY_S + 1.0
        began_s = time.monotonic()
        rig.put(service(2))
        await rig.until(lambda: rig.has(1, 2))
        assert rig.plane.stats.failures == 8
        assert time.monotonic() - began_s > 0.2  # 1 ms, then twice as much each time


async def test_nothing_is_tidied_between_a_failure_and_rules_made_anew() -> None:
    rig = Rig()
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.put(service(2))
        await rig.until(lambda: rig.has(1, 2))
        rig.kernel.refusals = ["busy"] * 6  # the first may be for tidying, before the change
        rig.put(service(3))
        await rig.until(lambda: rig.has(1, 2, 3))
        *_, failed = "".join(f"{each} " for each in rig.kernel.did if "ask" not in each).split("follow ")
        assert failed in {"establish " * 5, "establish " * 6}


async def test_services_that_the_kernel_refuses_are_left_out_until_they_change(
    logs: list[MutableMapping[str, Any]],
) -> None:
    rig = Rig(sync_s=3600.0)
    rig.kernel.poison = {"10.96.0.3", "10.96.0.7"}
    async with rig.running():
        rig.put(*map(service, range(2, 10)))
        rig.list_all()
        await rig.until(lambda: rig.has(1, 2, 4, 5, 6, 8, 9))
        assert rig.plane.refused == {("d", f"s{number}"): f"bad: ['10.96.0.{number}']" for number in (3, 7)}
        assert rig.synced[-1].refused == rig.plane.refused
        assert {line["service"] for line in logs if line["event"] == "a Service is left out"} == {"d/s3", "d/s7"}

        rig.put(service(10))  # others go on as if nothing were
        await rig.until(lambda: rig.has(1, 2, 4, 5, 6, 8, 9, 10))
        rig.kernel.did.clear()
        rig.put(endpoint_slice(3, "10.1.0.9"), service(11))  # asked about, and left out again
        await rig.until(lambda: rig.has(1, 2, 4, 5, 6, 8, 9, 10, 11))
        assert [what for what in rig.kernel.did if what != "tidy"] == ["ask 0", "ask 1", "follow"]
        assert rig.synced[-1].refused == {}  # which is no news

        rig.kernel.poison = {"10.96.0.7"}
        rig.put(endpoint_slice(3, "10.1.0.8"))
        await rig.until(lambda: rig.has(*(each for each in range(1, 12) if each != 7)))
        rig.kernel.poison = {"10.96.0.7", "10.96.0.11"}
        rig.put(endpoint_slice(11, "10.1.0.11"), service(12))  # what was good before is not any more
        await rig.until(lambda: rig.has(*(each for each in range(1, 13) if each not in (7, 11))))
        assert set(rig.plane.refused) == {("d", "s7"), ("d", "s11")}
        for gone in (7, 11):
            deleted = rig.state.delete(Service, ("d", f"s{gone}"))
            assert deleted
            rig.plane.changed([deleted])
        await rig.until(lambda: not rig.plane.refused)
        assert rig.plane.stats.services.pending == 0


async def test_what_is_made_anew_tries_those_again_that_were_left_out() -> None:
    rig = Rig()
    rig.kernel.poison = {"10.96.0.2"}
    async with rig.running():
        rig.put(service(2))
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.kernel.poison = set()
        rig.plane.distrust("by nft (process 7)")
        await rig.until(lambda: rig.has(1, 2))
        assert rig.plane.refused == {}


async def test_where_nothing_would_be_left_it_is_not_for_the_services() -> None:
    rig = Rig()
    rig.kernel.poison = {"10.96.0.1", "10.96.0.2"}
    async with rig.running():
        rig.put(service(2))
        rig.list_all()
        await rig.until(lambda: rig.plane.stats.failures > 1)
        assert not rig.plane.established.is_set()
        assert rig.plane.refused == {}
        assert rig.plane.stats.oldest_pending_s is not None


@pytest.mark.parametrize(
    ("bad", "questions"),
    [((), 2), ((5,), 30), (range(0, 1000, 100), 160), (range(1000), module_refusals.MOST_QUESTIONS + 2)],
)
async def test_the_refused_are_found_by_halves(bad: Iterable[int], questions: int) -> None:
    suspects, asked = [("d", str(number)) for number in range(1000)], 0
    wanted = {("d", str(number)) for number in bad}

    async def ask(keys: Sequence[Key]) -> str:
        nonlocal asked
        asked += 1
        return "bad" if wanted & set(keys) else ""

    assert await module_refusals.refused(ask, suspects) == dict.fromkeys(wanted, "bad")
    assert asked <= questions


async def test_a_kernel_that_takes_no_rules_at_all_has_nothing_against_a_service() -> None:
    async def ask(keys: Sequence[Key]) -> str:
        return f"no capability, for {keys}"

    assert await module_refusals.refused(ask, [("d", "a")]) == {}


async def test_rules_that_somebody_changed_are_made_anew() -> None:
    rig = Rig()
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.kernel.fronts = set()
        rig.plane.distrust("by nft (process 7)")
        await rig.until(lambda: rig.has(1))
        assert (rig.plane.stats.distrusts, rig.kernel.did) == (1, ["establish", "establish"])


async def test_what_cannot_be_healed_yet_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, turns = Rig(), 0
    async with rig.running():
        work = rig.plane._work  # noqa: SLF001 - counted

        async def counted() -> None:
            nonlocal turns
            turns += 1
            await work()

        monkeypatch.setattr(rig.plane, "_work", counted)
        for healed in (1, 2):  # before anything is known, and when the node is not known any more
            rig.plane.distrust("by nft (process 7)")
            for _ in range(20):
                await asyncio.sleep(0)
            assert turns < 10
            rig.situation = (VIEW, ProxyConfig())
            rig.list_all()
            await rig.until(lambda healed=healed: rig.kernel.did.count("establish") == healed)  # type: ignore[misc]
            rig.situation, turns = None, 0


async def test_a_quarrel_about_the_rules_gets_slower() -> None:
    rig = Rig(sync_s=0.5)
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        began_s = time.monotonic()
        for turn in range(module.PATIENCE + 3):
            rig.plane.distrust("by nft (process 7)")
            rig.plane.distrust("by nft (process 8)")
            await rig.until(lambda turn=turn: len(rig.kernel.did) == turn + 2)  # type: ignore[misc]
        assert time.monotonic() - began_s > 0.9  # two waits of 0.5 s, the first ones without
        rig.plane.timing = SyncTiming(0.0, 3600.0)
        rig.plane.distrust("by nft (process 7)")
        rig.put(service(2))  # changes of the cluster do not wait for the end of it
        await rig.until(lambda: rig.has(1, 2))
        rig.put(service(3))
        await rig.until(lambda: rig.has(1, 2, 3))
        assert rig.kernel.did.count("establish") == module.PATIENCE + 4
        rig.clock_s = module.QUARREL_S
        rig.plane.distrust("by nft (process 9)")
        for more in (5, 6):  # peace: it is done at once again
            await rig.until(lambda more=more: rig.kernel.did.count("establish") == module.PATIENCE + more)  # type: ignore[misc]
            rig.plane.distrust("by nft (process 9)")


async def test_a_run_that_is_cancelled_in_the_middle_begins_from_scratch() -> None:
    rig = Rig()
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.kernel.go_on.clear()
        rig.kernel.busy.clear()
        rig.put(service(2))
        await rig.kernel.busy.wait()
    rig.kernel.did.clear()
    async with rig.running():
        await rig.until(lambda: rig.has(1, 2))
        assert rig.kernel.did == ["establish"]


async def test_everything_is_made_anew_once_an_hour() -> None:
    rig = Rig()
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.clock_s = module.FULL_EVERY_S - 60
        rig.put(service(2))
        await rig.until(lambda: rig.has(1, 2))
        rig.clock_s += 61
        rig.put(service(3))
        await rig.until(lambda: rig.has(1, 2, 3))
        assert rig.kernel.rules == ["establish", "follow", "establish"]


async def test_what_node_and_ranges_say_counts_and_what_they_say_of_others_does_not() -> None:
    rig = Rig()
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.put(Node(NodeMeta("here")))
        await asyncio.sleep(0.01)
        assert rig.kernel.did == ["establish"]
        rig.situation = (VIEW, ProxyConfig(service_cidrs=(ip_network("10.96.0.0/16"),)))
        rig.put(ServiceCIDR(Meta("all"), ServiceCIDRSpec(("10.96.0.0/16",))))
        await rig.until(lambda: rig.kernel.did == ["establish", "establish"])


async def test_programming_is_timed_from_the_change_that_led_to_it() -> None:
    rig = Rig()
    async with rig.running():
        rig.put(endpoint_slice(1, "10.1.0.1", when="2020-01-01T00:00:00Z"))  # before kdns
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        histogram = rig.plane.stats.programming
        assert sum(histogram.counts) == 0
        soon = datetime.fromtimestamp(time.time() + 0.5, UTC).isoformat().replace("+00:00", "Z")
        for addresses in (("10.1.0.3",), ("10.1.0.4",)):  # the second is another change, of something else
            rig.put(endpoint_slice(1, *addresses, when=soon))
            await rig.until(lambda: rig.plane.stats.endpoints.pending == 0)
        assert sum(histogram.counts) == 1
        rig.put(endpoint_slice(1, "10.1.0.5", when="yesterday"))
        await rig.until(lambda: rig.plane.stats.endpoints.pending == 0)
        assert sum(histogram.counts) == 1


async def test_tidying_goes_on_under_changes_without_end_and_is_tried_again() -> None:
    rig = Rig()
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        for turn in range(200):
            rig.put(endpoint_slice(1, f"10.1.0.{2 + turn % 2}"))
            await asyncio.sleep(0.001)
            if rig.kernel.did.count("tidy") > 1:
                break
        assert rig.kernel.did.count("tidy") > 1
        await rig.until(lambda: rig.plane.stats.endpoints.pending == 0 and rig.plane._untidy_s is None)  # noqa: SLF001
        rig.kernel.refusals = ["busy"]
        rig.kernel.did.clear()
        rig.plane._untidy_s = rig.plane._now_s()  # noqa: SLF001 - something is left
        rig.plane._wanted.set()  # noqa: SLF001
        await rig.until(lambda: rig.kernel.did == ["tidy", "tidy"])
        assert (rig.plane.stats.tidy_failures, rig.plane.stats.failures) == (1, 0)
