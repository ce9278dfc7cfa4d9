"""Health check node ports while the API answers nothing: they open and close all the same."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from ipaddress import ip_address
from typing import Any

import msgspec
import pytest
from fake_modes import FakeMode

from kdns.cluster.objects import Service
from kdns.cluster.source import Source
from kdns.cluster.state import State
from kdns.proxy.node.io.events import MAX_QUEUED, EventRecorder
from kdns.proxy.node.io.health import LASTING_S, ProxyHealth, ServiceHealthServers
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.planner import plan
from kdns.proxy.sync.io.proxier import Footprint
from kdns.proxy.sync.io.runner import SyncResult, SyncRunner
from kdns.proxy.sync.schedule import SyncTiming
from kdns.proxy.userspace.mode import USERSPACE
from kdns.runtime.connections import ConnectionKind, Connections

DEADLINE_S = 60.0
NODE = ip_address("127.0.0.1")


def service(name: str, address: str, port: int) -> Service:
    spec: dict[str, Any] = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "clusterIP": address}
    spec |= {"healthCheckNodePort": port, "ports": [{"name": "p", "port": 80}]}
    return msgspec.convert({"metadata": {"name": name, "namespace": "d"}, "spec": spec}, Service)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


async def is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not await condition():
        assert time.monotonic() < deadline_s, "in vain"
        await asyncio.sleep(0.005)


async def test_no_port_waits_for_an_event_to_be_written() -> None:
    state, view = State(), NodeView("here", "", (NODE,), (NODE,))
    runner = SyncRunner(state, FakeMode("userspace", [], Footprint()), lambda: None, SyncTiming())
    connections = Connections(ConnectionKind.NODE_SITES)
    silent = socket.create_server(("127.0.0.1", 0))
    blocked = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    events = EventRecorder(Source(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}"), "here")
    servers = ServiceHealthServers(state, "here", ProxyHealth(runner, lambda: None), events, connections)
    ports = [each.getsockname()[1] for each in blocked]
    config = ProxyConfig(USERSPACE)  # which has node ports at loopback addresses too

    def have(*wanted: int) -> None:
        for number, port in enumerate(wanted):
            state.upsert(service(f"s{number}", f"10.96.0.{number + 1}", port))
        servers.synced(SyncResult(plan(state, view, config), {}, None))

    tasks = [asyncio.create_task(servers.run()), asyncio.create_task(events.run())]
    try:
        wanted = free_port()
        have(*ports, wanted)
        await until(lambda: is_open(wanted))
        wanted = free_port()
        have(*ports, wanted)
        await until(lambda: is_open(wanted))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in (silent, *blocked):
            each.close()


async def test_events_for_an_api_that_does_not_answer_are_bounded() -> None:
    events = EventRecorder(Source(endpoint="http://127.0.0.1:1"), "here")
    for number in range(2 * MAX_QUEUED):
        events.warn("d", f"s{number}", "Reason", "message")
    assert events._queue.qsize() == MAX_QUEUED  # noqa: SLF001 - nothing else shows what waits


@pytest.mark.parametrize(("lasting_s", "warnings"), [(LASTING_S, 0), (0.0, 1)])
async def test_a_port_that_is_in_use_for_a_while_is_no_warning(lasting_s: float, warnings: int) -> None:
    """At a take-over the kube-proxy that ends has the ports still."""
    state, view = State(), NodeView("here", "", (NODE,), (NODE,))
    runner = SyncRunner(state, FakeMode("userspace", [], Footprint()), lambda: None, SyncTiming())
    events = EventRecorder(Source(endpoint="http://127.0.0.1:1"), "here")
    health, connections = ProxyHealth(runner, lambda: None), Connections(ConnectionKind.NODE_SITES)
    servers = ServiceHealthServers(state, "here", health, events, connections, lasting_s=lasting_s)
    with socket.create_server(("127.0.0.1", 0)) as blocked:
        task = asyncio.create_task(servers.run())
        for _ in range(3):  # each change is an attempt
            wanted = free_port()
            for number, port in enumerate((blocked.getsockname()[1], wanted)):
                state.upsert(service(f"s{number}", f"10.96.0.{number + 1}", port))
            servers.synced(SyncResult(plan(state, view, ProxyConfig(USERSPACE)), {}, None))
            await until(partial(is_open, wanted))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert events._queue.qsize() == warnings  # noqa: SLF001 - nothing else shows what waits
