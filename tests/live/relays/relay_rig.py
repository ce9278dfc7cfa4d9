"""Relays under test on loopback: Services in 127.96.0.0/16, endpoints in 127.1.0.0/16, nothing captured."""

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from kdns.cluster.objects import (
    ClientIPConfig,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Ingress,
    LoadBalancerStatus,
    Service,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
    SessionAffinityConfig,
    SliceLabels,
    SliceMeta,
)
from kdns.cluster.state import State
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.plan import PortName
from kdns.proxy.plan.planner import Planner
from kdns.proxy.userspace.io.proxier import UserspaceProxier
from kdns.proxy.userspace.mode import USERSPACE
from kdns.proxy.userspace.sessions import PortState

DEADLINE_S = 60.0
VIP = "127.96.0.1"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def free_port(address: str = VIP, kind: int = socket.SOCK_STREAM) -> int:
    """A port that nobody has, and that the kernel gives to nobody: it chooses from 32768 on."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket(socket.AF_INET, kind) as probe, suppress(OSError):
            probe.bind((address, port))
            return port


def service(name: str, port: int, protocol: str = "TCP", *, vip: str = VIP, **spec: Any) -> Service:
    """A Service; `affinity_s` and `lb_ip` are short for what they stand for."""
    affinity_s, lb_ip = spec.pop("affinity_s", 0), spec.pop("lb_ip", "")
    if affinity_s:
        spec["session_affinity"] = "ClientIP"
        spec["session_affinity_config"] = SessionAffinityConfig(ClientIPConfig(affinity_s))
    if lb_ip:
        spec["type"] = "LoadBalancer"
    return Service(
        ServiceMeta(name, "shop"),
        ServiceSpec(cluster_ip=vip, ports=(ServicePort(port, "p", protocol),), **spec),
        ServiceStatus(LoadBalancerStatus((Ingress(lb_ip),))) if lb_ip else None,
    )


def endpoints(name: str, protocol: str, *pairs: tuple[str, int]) -> tuple[EndpointSlice, ...]:
    """A slice for each endpoint, since they may have different ports here."""
    return tuple(
        EndpointSlice(
            SliceMeta(f"{name}-{number}", "shop", SliceLabels(name)),
            endpoints=(Endpoint((address,)),),
            ports=(EndpointPort("p", port, protocol),),
        )
        for number, (address, port) in enumerate(pairs)
    )


@dataclass
class Rig:
    """A mode and the state that it follows."""

    mode: UserspaceProxier
    state: State = field(default_factory=State)
    planner: Planner | None = None

    async def have(self, wanted: Service, *pairs: tuple[str, int]) -> None:
        """Let there be this Service with these endpoints, and nothing else of its name."""
        protocol = wanted.ports[0].protocol
        changes: list[Any] = [self.state.upsert(wanted)]
        made = endpoints(wanted.metadata.name, protocol, *pairs)
        gone = set(self.state.slices_by_service.get(wanted.key, {})) - {each.key for each in made}
        changes += [self.state.delete(EndpointSlice, key) for key in gone]
        changes += [self.state.upsert(each) for each in made]
        await self._follow([change for change in changes if change])

    async def forget(self, name: str) -> None:
        gone = self.state.delete(Service, ("shop", name))
        await self._follow([gone] if gone else [])

    async def _follow(self, changes: list[Any]) -> None:
        if self.planner is None:
            self.planner = Planner(self.state, NodeView("here"), ProxyConfig(USERSPACE, node_port_addresses=()))
            await self.mode.sync_full(self.planner.plan)
        else:
            differences = self.planner.changed(changes)
            await self.mode.sync_partial(self.planner.plan, differences)

    def counters(self, name: str, protocol: str = "TCP") -> PortState:
        """What the Service's port saw."""
        return self.mode.counters.by_port.get(PortName("shop", name, "p", protocol), PortState())


@asynccontextmanager
async def rig(**options: Any) -> AsyncIterator[Rig]:
    """A rig, closed at the end; each Service port begins with its first endpoint."""
    made = Rig(UserspaceProxier(draw=lambda count: 0 * count, **options))
    try:
        yield made
    finally:
        await made.mode.close()


@asynccontextmanager
async def served(handler: Handler, address: str = "127.1.0.1", *, limit: int = 2**16) -> AsyncIterator[tuple[str, int]]:
    """An endpoint that handles connections like this."""
    tasks: set[asyncio.Task[Any]] = set()

    async def handled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        try:
            await handler(reader, writer)
        except ConnectionError:
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(handled, address, 0, limit=limit, backlog=2048)
    try:
        yield server.sockets[0].getsockname()
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()


def saying(what: str) -> Handler:
    """A handler that says one thing and ends."""

    async def handler(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(what.encode())
        await writer.drain()

    return handler


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(1 << 16):
        writer.write(piece)
        await writer.drain()


async def heard(port: int, vip: str = VIP, source: str = "127.0.0.1") -> str:
    """All that somebody says at a virtual IP, or the name of the error."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection(vip, port, local_addr=(source, 0))
            try:
                return (await reader.read()).decode()
            finally:
                writer.close()
    except OSError as error:
        return type(error).__name__


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it; fails after the deadline."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "in vain"
        await asyncio.sleep(0.005)


async def until_still(value: Callable[[], int]) -> None:
    """Wait until it is not 0 and has not changed for fifty looks."""
    seen = [0]
    await until(lambda: seen.append(value()) or (seen[-1] > 0 and seen[-50:] == [seen[-1]] * 50))  # type: ignore[func-returns-value]
