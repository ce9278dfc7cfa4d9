"""Deleting stale UDP flows goes on after whatever the kernel refuses, and logs each reason once."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from ipaddress import ip_address

import pytest
from dataplane_rig import DEADLINE_S
from structlog.testing import capture_logs

from kdns.cluster.objects import Service, ServiceMeta, ServicePort, ServiceSpec
from kdns.cluster.state import State
from kdns.net import Family
from kdns.netlink.conntrack import Flow
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.planner import plan
from kdns.proxy.plan.stale_flows import serving
from kdns.proxy.sync.io import conntrack as module
from kdns.proxy.sync.io.conntrack import ConntrackReconciler
from kdns.proxy.sync.io.runner import SyncResult

VIP = "10.96.0.1"
STALE, SERVED = (Flow((VIP, port), ("10.1.0.2", 53), b"1") for port in (53, 54))


def result(port: int = 53) -> SyncResult:
    state, address = State(), ip_address("192.0.2.1")
    state.upsert(Service(ServiceMeta("dns", "d"), ServiceSpec(cluster_ip=VIP, ports=(ServicePort(port, "p", "UDP"),))))
    return SyncResult(plan(state, NodeView("here", "", (address,), (address,)), ProxyConfig(NFTABLES)), {}, None)


async def test_a_flow_that_a_later_sync_made_right_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoints, listed = set[tuple[str, int]](), asyncio.Event()
    loop = asyncio.get_running_loop()

    def udp_flows(family: Family, is_wanted: Callable[[Flow], bool]) -> list[Flow]:
        wanted = [flow for flow in [SERVED, STALE] if family == "IPv4" and is_wanted(flow)]
        if endpoints:
            loop.call_soon_threadsafe(listed.set)
        else:
            assert wanted == [STALE]
            endpoints.add(STALE.answers_from)
            reconciler.synced(result())
        return wanted

    monkeypatch.setattr(module, "udp_flows", udp_flows)
    monkeypatch.setattr(module, "delete_flows", pytest.fail)
    reconciler = ConntrackReconciler(lambda _, __: frozenset(endpoints))
    reconciler.synced(result())
    work = asyncio.create_task(reconciler.run())
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait((work, asyncio.create_task(listed.wait())), return_when=asyncio.FIRST_COMPLETED)
    assert not work.done()
    work.cancel()


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOENT, errno.ENOBUFS])
async def test_it_goes_on_after_a_refusal(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    refusals, deleted = [error] * 3, list[Flow]()

    def udp_flows(family: Family, is_wanted: Callable[[Flow], bool]) -> list[Flow]:
        assert threading.current_thread() is not threading.main_thread()  # there may be a million flows to look at
        if refusals:
            raise OSError(refusals.pop(), os.strerror(error))
        there = [SERVED, STALE] if family == "IPv4" and STALE not in deleted else []
        return [flow for flow in there if is_wanted(flow)]

    def delete_flows(_family: Family, flows: list[Flow]) -> int:
        assert flows == [STALE]
        deleted.extend(flows)
        return len(flows)

    monkeypatch.setattr(module, "udp_flows", udp_flows)
    monkeypatch.setattr(module, "delete_flows", delete_flows)
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    reconciler = ConntrackReconciler(lambda _, front: serving(front))
    work = asyncio.create_task(reconciler.run())
    try:
        with capture_logs() as logs:
            for _ in range(2):
                reconciler.synced(result())
                async with asyncio.timeout(DEADLINE_S):
                    while not reconciler.deleted["IPv4"]:  # noqa: ASYNC110 - what is waited for has no event
                        await asyncio.sleep(0.001)
                reconciler.deleted["IPv4"] = 0
                deleted.clear()
        assert len([log for log in logs if "not deleted" in log["event"]]) == 1
    finally:
        work.cancel()


async def test_fronts_of_a_listing_that_failed_are_examined_with_those_noted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The flow of port 53 is of the sync before the failure, that of port 54 of the one during it."""
    deleted, is_refused = asyncio.Queue[list[Flow]](), False
    loop = asyncio.get_running_loop()

    def udp_flows(family: Family, is_wanted: Callable[[Flow], bool]) -> list[Flow]:
        nonlocal is_refused
        if family == "IPv4" and not is_refused:
            is_refused = True
            reconciler.synced(result(54))
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        return [flow for flow in (STALE, SERVED) if family == "IPv4" and is_wanted(flow)]

    def delete_flows(_family: Family, flows: list[Flow]) -> int:
        loop.call_soon_threadsafe(deleted.put_nowait, flows)
        return len(flows)

    monkeypatch.setattr(module, "udp_flows", udp_flows)
    monkeypatch.setattr(module, "delete_flows", delete_flows)
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    reconciler = ConntrackReconciler(lambda _, front: serving(front))
    reconciler.synced(result(53))
    work = asyncio.create_task(reconciler.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            assert await deleted.get() == [STALE, SERVED]
    finally:
        work.cancel()
