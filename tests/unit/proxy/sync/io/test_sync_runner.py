"""The loop that carries plans into the kernel: what is applied when, and what follows a refusal."""

import asyncio
import time
from collections.abc import MutableMapping
from datetime import UTC, datetime
from ipaddress import ip_network
from typing import Any

import pytest
from dataplane_rig import VIEW, Rig, endpoint_slice, hurry, service
from msgspec.structs import replace as replace_struct
from structlog.testing import capture_logs

from kdns.cluster.objects import Meta, Node, NodeMeta, ServiceCIDR, ServiceCIDRSpec, ServicePort
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.plan.config import ProxyConfig


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


async def test_nothing_is_applied_before_everything_has_been_listed_and_the_node_is_known() -> None:
    rig = Rig()
    rig.inputs = None
    async with rig.running():
        rig.put(service(1))
        rig.plane.foreign_change("by somebody")  # what is there from before stays until we know better
        await asyncio.sleep(0.02)
        rig.list_all()
        await asyncio.sleep(0.02)
        assert rig.kernel.did == []
        assert rig.plane.stats.oldest_pending_s is None
        rig.inputs = (VIEW, ProxyConfig(NFTABLES))
        rig.plane.inputs_changed()
        await rig.until(lambda: rig.has(1))
        assert rig.kernel.did == ["sync_full"]
        assert rig.synced[0].differences is None


async def test_changes_are_gathered_and_what_is_left_over_is_tidied() -> None:
    rig = Rig(min_sync_s=0.05)
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.kernel.busy_sweeps = 1
        for number in (2, 3, 4):
            rig.put(service(number))
        await rig.until(lambda: rig.has(1, 2, 3, 4))
        await rig.until(lambda: rig.kernel.did == ["sync_full", "sync_partial", "sweep", "sweep"])
        assert set(rig.synced[1].services) == {("d", f"s{number}") for number in (2, 3, 4)}
        stats = rig.plane.stats
        assert (stats.services.pending, stats.services.total, stats.oldest_pending_s) == (0, 4, None)
        rig.put(endpoint_slice(9, "10.1.0.9"))  # of no Service
        await rig.until(lambda: stats.endpoints.pending == 0)
        assert rig.kernel.did[4:] == []


async def test_rules_that_somebody_changed_are_made_anew() -> None:
    rig = Rig()
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.kernel.fronts = set()
        rig.plane.foreign_change("by nft (process 7)")
        await rig.until(lambda: rig.has(1))
        assert (rig.plane.stats.foreign_changes, rig.kernel.did) == (1, ["sync_full", "sync_full"])


async def test_what_cannot_be_healed_yet_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, turns = Rig(), 0
    async with rig.running():
        work = rig.plane._wait  # noqa: SLF001 - counted

        async def counted() -> None:
            nonlocal turns
            turns += 1
            await work()

        monkeypatch.setattr(rig.plane, "_wait", counted)
        for healed in (1, 2):  # before anything is known, and when the node is not known any more
            rig.plane.foreign_change("by nft (process 7)")
            for _ in range(20):
                await asyncio.sleep(0)
            assert turns < 10
            rig.inputs = (VIEW, ProxyConfig(NFTABLES))
            rig.list_all()
            await rig.until(lambda healed=healed: rig.kernel.did.count("sync_full") == healed)  # type: ignore[misc]
            rig.inputs, turns = None, 0


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
        assert rig.kernel.did == ["sync_full"]


@pytest.mark.parametrize(
    ("failing", "wanted"),
    [
        ("sync_full", ["sync_full", "sync_full", "sync_partial"]),
        ("sync_partial", ["sync_full", "sync_partial", "sync_full"]),
        ("sweep", ["sync_full", "sync_partial", "sync_full"]),
    ],
)
async def test_a_defect_is_logged_and_retried_as_a_full_sync(failing: str, wanted: list[str]) -> None:
    rig, defect = Rig(), OverflowError("int too big to convert")
    if failing == "sync_full":
        rig.kernel.defects.append(defect)
    with capture_logs() as logs:
        async with rig.running():
            rig.list_all()
            await rig.until(lambda: rig.has(1))
            if failing == "sync_partial":
                rig.kernel.defects.append(defect)
            rig.put(service(2))
            await rig.until(lambda: rig.has(1, 2))
            if failing == "sweep":
                rig.kernel.defects.append(defect)
                await rig.until(lambda: rig.kernel.did.count("sync_full") > 1)
    assert rig.kernel.rules == wanted
    (entry,) = [log for log in logs if log["log_level"] == "error"]
    assert (entry["reason"], entry["exc_info"]) == (str(defect), defect)
    assert rig.plane.stats.failures + rig.plane.stats.cleanup_failures == 1


async def test_what_node_and_ranges_say_counts_and_what_they_say_of_others_does_not() -> None:
    rig = Rig()
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.put(Node(NodeMeta("here")))
        await asyncio.sleep(0.01)
        assert rig.kernel.did == ["sync_full"]
        rig.inputs = (VIEW, ProxyConfig(NFTABLES, service_cidrs=(ip_network("10.96.0.0/16"),)))
        rig.put(ServiceCIDR(Meta("all"), ServiceCIDRSpec(("10.96.0.0/16",))))
        await rig.until(lambda: rig.kernel.did == ["sync_full", "sync_full"])


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


async def test_a_full_sync_is_news_and_a_partial_one_is_for_debugging(logs: list[MutableMapping[str, Any]]) -> None:
    rig = Rig()
    async with rig.running():
        rig.list_all()
        await rig.until(lambda: rig.has(1))
        rig.put(service(2))
        await rig.until(lambda: rig.has(1, 2))
    synced = [(line["full"], line["log_level"]) for line in logs if line["event"] == "rules synced"]
    assert synced == [(True, "info"), (False, "debug")]


async def test_a_service_that_the_kernel_rejects_is_news_once(logs: list[MutableMapping[str, Any]]) -> None:
    """Also if another sync fails between."""

    def lines() -> list[Any]:
        return [line["service"] for line in logs if line["event"] == "rules of Service rejected"]

    rig = Rig()
    async with rig.running():
        rig.kernel.rejected = {("d", "s2"): "no such protocol"}
        rig.put(service(2))
        rig.list_all()
        await rig.until(lambda: rig.has(1, 2))
        assert rig.plane.rejected == rig.kernel.rejected
        rig.kernel.refusals = ["busy"]
        rig.put(service(3))
        await rig.until(lambda: rig.has(1, 2, 3))
        assert lines() == ["d/s2"]
        rig.kernel.rejected = {}
        rig.put(service(4))
        await rig.until(lambda: rig.has(1, 2, 3, 4))
        assert rig.plane.rejected == {}
        rig.kernel.rejected = {("d", "s2"): "no such protocol"}
        rig.put(service(5))
        await rig.until(lambda: rig.has(1, 2, 3, 4, 5))
        assert lines() == ["d/s2", "d/s2"]
