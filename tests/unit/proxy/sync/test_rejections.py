"""What the dataplane does when the kernel refuses: it tries again, and leaves out the Services that it is for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

import pytest
from dataplane_rig import Rig, endpoint_slice, hurry, service
from msgspec.structs import replace as replace_struct

from kdns.cluster.objects import Key, Service, ServicePort
from kdns.proxy.plan.planner import Planner
from kdns.proxy.sync import rejections, schedule
from kdns.proxy.sync.io import runner as module


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.mark.parametrize("at", ["sync_full", "sync_partial"])
async def test_what_is_refused_is_tried_again_from_scratch_with_what_came_meanwhile(at: str) -> None:
    rig = Rig()
    async with rig.running():
        if at == "sync_partial":
            rig.list_all()
            await rig.until(lambda: rig.has(1))
        rig.kernel.refusals = ["busy", "busy"]
        rig.kernel.go_on.clear()
        rig.kernel.busy.clear()
        if at == "sync_partial":
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
        assert rig.kernel.rules[-2:] == ["sync_full", "sync_full"]


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
        rig.clock_s = schedule.FULL_SYNC_S + 1.0
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
        *_, failed = "".join(f"{each} " for each in rig.kernel.did if "check" not in each).split("sync_partial ")
        assert failed in {"sync_full " * 5, "sync_full " * 6}


async def test_services_that_the_kernel_refuses_are_left_out_until_they_change(
    logs: list[MutableMapping[str, Any]],
) -> None:
    rig = Rig(sync_s=3600.0)
    rig.kernel.poison = {"10.96.0.3", "10.96.0.7"}
    async with rig.running():
        rig.put(*map(service, range(2, 10)))
        rig.list_all()
        await rig.until(lambda: rig.has(1, 2, 4, 5, 6, 8, 9))
        assert rig.plane.rejected == {("d", f"s{number}"): f"bad: ['10.96.0.{number}']" for number in (3, 7)}
        assert rig.synced[-1].rejected == rig.plane.rejected
        assert {line["service"] for line in logs if line["event"] == "Service left out of the rules"} == {
            "d/s3",
            "d/s7",
        }

        rig.put(service(10))  # others go on as if nothing were
        await rig.until(lambda: rig.has(1, 2, 4, 5, 6, 8, 9, 10))
        rig.kernel.did.clear()
        rig.put(endpoint_slice(3, "10.1.0.9"), service(11))  # asked about, and left out again
        await rig.until(lambda: rig.has(1, 2, 4, 5, 6, 8, 9, 10, 11))
        assert [what for what in rig.kernel.did if what != "sweep"] == ["check 1", "sync_partial"]
        assert rig.synced[-1].rejected == {}  # which is no news

        rig.kernel.poison = {"10.96.0.7"}
        rig.put(endpoint_slice(3, "10.1.0.8"))
        await rig.until(lambda: rig.has(*(each for each in range(1, 12) if each != 7)))
        rig.kernel.poison = {"10.96.0.7", "10.96.0.11"}
        rig.put(endpoint_slice(11, "10.1.0.11"), service(12))  # what was good before is not any more
        await rig.until(lambda: rig.has(*(each for each in range(1, 13) if each not in (7, 11))))
        assert set(rig.plane.rejected) == {("d", "s7"), ("d", "s11")}
        for gone in (7, 11):
            deleted = rig.state.delete(Service, ("d", f"s{gone}"))
            assert deleted
            rig.plane.changed([deleted])
        await rig.until(lambda: not rig.plane.rejected)
        assert rig.plane.stats.services.pending == 0


async def test_what_is_made_anew_tries_those_again_that_were_left_out() -> None:
    rig = Rig()
    rig.kernel.poison = {"10.96.0.2"}
    async with rig.running():
        rig.put(service(2))
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.kernel.poison = set()
        rig.plane.foreign_change("by nft (process 7)")
        await rig.until(lambda: rig.has(1, 2))
        assert rig.plane.rejected == {}


async def test_a_kernel_that_cannot_be_asked_says_nothing_about_services() -> None:
    rig = Rig()
    async with rig.running():
        rig.put(*map(service, range(2, 6)))
        rig.list_all()
        await rig.until(lambda: rig.has(*range(1, 6)))
        rig.kernel.cannot_be_asked = True
        rig.kernel.refusals = ["busy"] * 3
        rig.put(service(6))
        await rig.until(lambda: rig.has(*range(1, 7)))
        assert rig.plane.stats.failures == 3
        assert rig.plane.rejected == {}
        assert not rig.plane.left_out


async def test_where_nothing_would_be_left_it_is_not_for_the_services() -> None:
    rig = Rig()
    rig.kernel.poison = {"10.96.0.1", "10.96.0.2"}
    async with rig.running():
        rig.put(service(2))
        rig.list_all()
        await rig.until(lambda: rig.plane.stats.failures > 1)
        assert not rig.plane.established.is_set()
        assert rig.plane.rejected == {}
        assert rig.plane.stats.oldest_pending_s is not None


@pytest.mark.parametrize("slices", [1, 7])
@pytest.mark.parametrize(
    ("bad", "checks"),
    [((), 4), ((5,), 20), (range(0, 1000, 100), 160), (range(0, 1000, 10), 1000), (range(1000), 2000)],
)
async def test_rejected_services_are_found_by_halves(bad: Iterable[int], checks: int, slices: int) -> None:
    """Also where the search is interrupted after so many checks. The first are accepted after a few."""
    suspects, checked = [("d", str(number)) for number in range(1000)], 0
    wanted = {("d", str(number)) for number in bad}
    accepted, rejected = list[Key](), dict[Key, str]()
    first_accepted = 0

    async def check(keys: Sequence[Key]) -> str:
        nonlocal checked, first_accepted
        checked += 1
        is_bad = bool(wanted & set(keys))
        if not is_bad and not first_accepted:
            first_accepted = checked
        return "bad" if is_bad else ""

    search = rejections.RejectionSearch()
    search.add(suspects)
    search.add(suspects)
    while undecided := search.undecided:
        assert undecided | rejected.keys() | set(accepted) == set(suspects)
        until = checked + slices
        decisions = await search.decide(check, lambda until=until: checked >= until)  # type: ignore[misc]
        accepted += decisions.accepted
        rejected |= decisions.rejected
    assert rejected == dict.fromkeys(wanted, "bad")
    assert sorted(accepted) == sorted(set(suspects) - wanted)
    assert checked <= checks
    assert first_accepted <= 10


async def test_those_that_the_kernel_accepts_are_applied_while_others_are_undecided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Changes of the cluster and repairs of the rules are not held up either."""
    monkeypatch.setattr(module, "BISECT_BUDGET_S", 10.0)
    monkeypatch.setattr(rejections, "MAX_GROUP", 4)
    rig = Rig()
    rig.kernel.poison = {f"10.96.0.{number}" for number in range(3, 250, 3)}
    rig.kernel.check_s = 1.0  # of the rig's clock
    rig.kernel.passed = rig.pass_s
    good = [number for number in range(1, 250) if number % 3]
    async with rig.running():
        rig.put(*map(service, range(2, 250)))
        rig.list_all()
        await rig.until(rig.plane.established.is_set)
        assert 0 < len(rig.kernel.fronts) < 20
        assert rig.plane.left_out
        rig.put(service(251))
        await rig.until(lambda: rig.has_all(251))
        assert rig.plane.left_out - rig.plane.rejected.keys()
        rig.plane.foreign_change("by nft (process 7)")
        await rig.until(lambda: rig.has(*good, 251))
        await rig.until(lambda: not rig.plane.left_out - rig.plane.rejected.keys())
        assert {f"10.96.0.{key[1][1:]}" for key in rig.plane.rejected} == rig.kernel.poison


@pytest.mark.parametrize("at", ["start", "change"])
async def test_a_kernel_that_rejects_everything_is_asked_about_nothing_more(
    monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """One plan is made, and none for a retry or a change until the kernel accepts a plan without Services."""
    planned = list[int]()
    original = Planner

    def counted(*args: Any, services: Iterable[Key]) -> Any:
        planned.append(len(services := list(services)))
        return original(*args, services=services)

    monkeypatch.setattr(module, "Planner", counted)
    rig = Rig()
    async with rig.running():
        rig.put(*map(service, range(2, 10)))
        if at == "change":
            rig.list_all()
            await rig.until(lambda: rig.has(*range(1, 10)))
            planned.clear()
        rig.kernel.rejects_everything = True
        if at == "start":
            rig.list_all()
        for number in range(10, 15):
            rig.put(service(number))
            failures = rig.plane.stats.failures
            await rig.until(lambda failures=failures: rig.plane.stats.failures > failures)  # type: ignore[misc]
        assert len([count for count in planned if count]) == (1 if at == "start" else 0)
        assert rig.plane.rejected == {}
        rig.kernel.rejects_everything = False
        await rig.until(lambda: rig.has(*range(1, 15)))


async def test_changes_do_not_hurry_a_kernel_that_rejects_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "FIRST_RETRY_S", 3600.0)
    rig = Rig(sync_s=3600.0)
    rig.kernel.rejects_everything = True
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.plane.stats.failures == 1)
        before = list(rig.kernel.did)
        for number in range(2, 20):
            rig.put(service(number))
            await asyncio.sleep(0)
        assert rig.kernel.did == before


async def test_what_a_service_does_not_get_is_news_once() -> None:
    rig = Rig()
    asking = service(2)
    ssh = replace_struct(asking.spec, external_ips=("192.0.2.1",), ports=(ServicePort(22, "p"),))
    asking = replace_struct(asking, spec=ssh)
    subject = ("d", "s2"), "external IP 192.0.2.1:22/TCP"
    async with rig.running():
        rig.put(asking)
        rig.list_all()
        await rig.until(lambda: rig.has(1, 2))
        assert rig.synced[-1].refused == {subject: "it is ssh of this node"}
        rig.put(service(3))
        await rig.until(lambda: rig.has(1, 2, 3))
        assert rig.synced[-1].refused == {}
        rig.put(service(2))
        await rig.until(lambda: not rig.plane.plan or not rig.plane.plan.refusals)
        rig.put(asking)
        await rig.until(lambda: rig.synced[-1].refused == {subject: "it is ssh of this node"})
