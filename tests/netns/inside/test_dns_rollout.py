"""A Pod of kdns is replaced: each query has its answer at once, from new ports and from those of old flows.

The Pods are processes of `kdns serve` in the namespaces of Pods. What a kubelet and the controller of EndpointSlices do
is done here, step by step: a Pod is told to stop, is terminating, and is not serving once /ready says so.
"""

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import dnslib
import msgspec
from dataplanes import DATAPLANE
from node_process import DEADLINE_S, KDNS, Started, fetched, until
from small_cluster import CLIENTS, CONFIG, ENDPOINTS, NODE_VIEW, endpoints, service, state
from world import World

from kdns.cluster.objects import EndpointSlice, Service
from kdns.cluster.state import State
from kdns.netlink.io.conntrack import udp_flows
from kdns.proxy.sync.io.conntrack import ConntrackReconciler
from kdns.proxy.sync.io.runner import SyncRunner
from kdns.proxy.sync.schedule import SyncTiming

PORT: Final = 5353
VIP: Final = ("10.96.0.1", 80)
PODS: Final = {"p1": "pod1", "p2": "pod2"}
FLOWS: Final = 8
"""Clients that keep their port, in each of two places: all at one Pod once in 2^16 runs."""
COREFILE: Final = """\
.:{port} {{
    bind {address}
    health {address}:8081 {{
        lameduck 10m
    }}
    ready {address}:8181
    hosts {{
        {address} who.test
    }}
}}
"""


@contextmanager
def pod(world: World, end: str, folder: Path) -> Iterator[Started]:
    """`kdns serve` in a Pod's namespace; it says its address."""
    address, corefile = ENDPOINTS[end][0], folder / f"Corefile-{end}"
    corefile.write_text(COREFILE.format(port=PORT, address=address))
    argv = ["ip", "netns", "exec", world.names[PODS[end]], KDNS, "serve", "--conf", str(corefile)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        started = Started(process)
        try:
            started.wait_for("ready\n")
            yield started
        finally:
            process.kill()
            started.reader.join(DEADLINE_S)


@dataclass(slots=True)
class Clients:
    """Sockets that keep their ports, and new ones for every round of queries."""

    world: World
    old: list[socket.socket]

    async def served_by(self, *, old: bool) -> set[str]:
        """Who answers; every query is sent once, and is answered."""
        clients = self.old if old else [client for who in ("outside", "remote") for client in self.new(who, FLOWS)]
        answered = await asyncio.gather(*map(answer, clients))
        for client in clients if not old else ():
            client.close()
        return set(answered)

    def new(self, who: str, count: int) -> Iterator[socket.socket]:
        for _ in range(count):
            client = self.world.socket(who, CLIENTS[who][0], socket.SOCK_DGRAM)
            client.connect(VIP)
            yield client


async def answer(client: socket.socket) -> str:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_S):
        await loop.sock_sendall(client, bytes(dnslib.DNSRecord.question("who.test").pack()))
        return str(dnslib.DNSRecord.parse(await loop.sock_recv(client, 512)).rr[0].rdata)


def slices(*ends: str) -> list[EndpointSlice]:
    return [
        msgspec.structs.replace(
            endpoint, ports=tuple(msgspec.structs.replace(port, port=PORT) for port in endpoint.ports or ())
        )
        for endpoint in endpoints(1, *ends)
    ]


async def follow(known: State, dataplane: SyncRunner, flows: ConntrackReconciler, *ends: str) -> None:
    applied = asyncio.Event()
    dataplane.subscribers[:] = [flows.synced, lambda _: applied.set()]
    dataplane.changed([change for endpoint_slice in slices(*ends) if (change := known.upsert(endpoint_slice))])
    async with asyncio.timeout(DEADLINE_S):
        await applied.wait()


async def flows_to(address: str) -> int:
    return sum(flow.answers_from[0] == address for flow in udp_flows("IPv4"))


def test_every_query_is_answered_while_a_pod_of_kdns_is_replaced(
    loop: asyncio.AbstractEventLoop, world: World, tmp_path: Path
) -> None:
    world.forget()
    Path("/proc/sys/net/netfilter/nf_conntrack_udp_timeout").write_text("600")  # no flow ends by itself
    with ExitStack() as stack:
        p1, p2 = (stack.enter_context(pod(world, end, tmp_path)) for end in PODS)
        loop.run_until_complete(replaced(world, p1))
        assert p2.process.poll() is None


async def replaced(world: World, leaving: Started) -> None:
    first, second = (ENDPOINTS[end][0] for end in PODS)
    known = state(service(1, tuple(slices("p1", "p2"))))
    known.synced |= {Service, EndpointSlice}
    config = replace(CONFIG, mode=DATAPLANE.mode)
    mode = DATAPLANE.proxier()
    dataplane = SyncRunner(known, mode, lambda: (NODE_VIEW, config), SyncTiming(min_sync_s=0.0))
    flows = ConntrackReconciler(mode.udp_targets)
    running = asyncio.gather(dataplane.run(), flows.run())
    dataplane.changed([])
    await dataplane.established.wait()
    clients = Clients(world, [])
    clients.old += [client for who in ("outside", "remote") for client in clients.new(who, FLOWS)]
    assert await clients.served_by(old=True) == {first, second}

    leaving.process.terminate()

    async def ready() -> int:
        return fetched(f"http://{first}:8181/ready")[0]

    await follow(known, dataplane, flows, "p1 terminating", "p2")
    assert await clients.served_by(old=True) == {first, second}
    assert await clients.served_by(old=False) == {second}
    await until(503, ready)
    assert await clients.served_by(old=True) == {first, second}

    await follow(known, dataplane, flows, "p1 gone", "p2")
    await until(0, lambda: flows_to(first))
    for is_old in (True, False):
        assert await clients.served_by(old=is_old) == {second}
    assert leaving.process.poll() is None, "the Pod still answers when its flows are led elsewhere"

    leaving.process.kill()
    leaving.process.wait()
    await follow(known, dataplane, flows, "p2")
    for is_old in (True, False):
        assert await clients.served_by(old=is_old) == {second}
    for client in clients.old:
        client.close()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not dataplane.stats.failures
