"""What the dataplane does when the kernel refuses: it tries again, and names what the kernel lacks."""

from collections.abc import MutableMapping
from typing import Any

import pytest
from dataplane_rig import Rig, hurry, service
from msgspec.structs import replace as replace_struct

from kdns.cluster.objects import ServicePort


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
