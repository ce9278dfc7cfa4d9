"""A node that goes from mode to mode under a running load: what fails meanwhile, and what of a mode before stays."""

import asyncio
import re
import socket
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from node_process import DEADLINE_S, KDNS, Api, Started, fetched, start, until
from world import World

METRICS: Final = "http://127.0.0.1:10249"
SETTINGS: Final = """\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: {mode}
hostnameOverride: kdns
clusterCIDR: 10.1.0.0/24
nodePortAddresses: [192.0.2.0/24]
clientConnection: {{kubeconfig: kc}}
oomScoreAdj: 0
conntrack: {{maxPerCore: 0}}
nftables: {{minSyncPeriod: 50ms}}
iptables: {{minSyncPeriod: 50ms}}
udpIdleTimeout: 10s
"""
ECHO_PORT: Final = 9000
ANSWER_S: Final = 60.0
LOOK_S: Final = 0.25
"""Between two looks at the rules, which start five programs."""
CLIENTS: Final = ("outside", "192.0.2.100"), ("pod1", "10.1.0.2"), ("remote", "10.1.1.3"), ("node", "192.0.2.9")
ENDS: Final = ("10.1.0.3", "10.1.1.2")
HINT: Final = "KUBE-IPTABLES-HINT"
"""The kubelet's chain, by whose back end that of the proxy is chosen."""

Step: TypeAlias = tuple[str, str]
"""A mode, and the back end of iptables that the node's kubelet uses, if any."""

NFTABLES, RELAYS, NFT, LEGACY = ("nftables", ""), ("userspace", ""), ("iptables", "nft"), ("iptables", "legacy")
RELAYS_BY_IPTABLES, IPVS = ("userspace", "legacy"), ("ipvs", "legacy")
RELAYING: Final = {RELAYS, RELAYS_BY_IPTABLES}
IN_THE_KERNEL: Final = {
    NFTABLES: {"table ip kdns", "table ip6 kdns"},
    RELAYS: {"table ip kdns", "table ip6 kdns"},
    NFT: {"chains nft"},
    LEGACY: {"chains legacy"},
    RELAYS_BY_IPTABLES: {"chains legacy"},
    IPVS: {"chains legacy", "ipvs"},
}


def rules() -> set[str]:
    listed = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False).stdout
    found = {line for line in listed.splitlines() if line.split()[-1] in {"kdns", "kube-proxy"}}
    for backend in ("nft", "legacy"):
        for program in ("iptables", "ip6tables"):
            command = [f"{program}-{backend}-save"]
            saved = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            if {each for each in re.findall(r"\bKUBE-[A-Z0-9-]+", saved) if each != HINT}:
                found.add(f"chains {backend}")
    if "kube-ipvs0" in (name for _, name in socket.if_nameindex()):
        found.add("ipvs")
    return found


def prefer(backend: str) -> None:
    for each, verb in (("nft", "-X"), ("legacy", "-X"), (backend, "-N")):
        if each:
            subprocess.run([f"iptables-{each}", "-t", "mangle", verb, HINT], capture_output=True, check=False)


@dataclass(slots=True)
class Load:
    """Clients that connect all the time, and connections that stay."""

    world: World
    vip: str
    node_port: int
    done: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    ports: Iterator[int] = field(default_factory=lambda: count(10000))
    pause_s: float = 0.01
    is_over: bool = False
    phase: str = ""

    def __str__(self) -> str:
        return f"{self.done.total()} connections, {len(self.failures)} failed, the slowest took {self.slowest_s:.3f} s"

    async def connect(self, space: str, address: str, kind: socket.SocketKind, to: tuple[str, int]) -> socket.socket:
        """A connection; a port of UDP that was used before would be the flow before."""
        client = self.world.socket(space, address, kind, next(self.ports) if kind is socket.SOCK_DGRAM else 0)
        try:
            await asyncio.get_running_loop().sock_connect(client, to)
        except BaseException:
            client.close()
            raise
        return client

    async def echo(self, client: socket.socket) -> str:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"hello")
        said = await loop.sock_recv(client, 100)
        if not said:
            raise ConnectionResetError("ended")
        return said.decode()

    async def client(self, space: str, address: str, kind: socket.SocketKind, to: tuple[str, int]) -> None:
        while not self.is_over:
            began_s = time.monotonic()
            try:
                async with asyncio.timeout(ANSWER_S):
                    with await self.connect(space, address, kind, to) as client:
                        self.done[await self.echo(client)] += 1
            except (OSError, TimeoutError) as error:
                self.failures.append(f"{self.phase}: {space} {kind.name} {to}: {error!r}")
            self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
            await asyncio.sleep(self.pause_s)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        fronts = (self.vip, 80), ("192.0.2.1", self.node_port)
        kinds = socket.SOCK_STREAM, socket.SOCK_DGRAM
        tasks = [asyncio.create_task(self.client(*who, kind, to)) for who in CLIENTS for kind in kinds for to in fronts]
        self.is_over = False
        try:
            yield
        finally:
            self.is_over = True
            await asyncio.gather(*tasks)


@dataclass(slots=True)
class Patient:
    """A connection that stays, with the endpoint that it has; `since` is the mode in which it was made."""

    client: socket.socket
    end: str
    since: Step


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every hello with the own address, until the client ends."""
    own = writer.get_extra_info("sockname")[0]
    with suppress(ConnectionError):
        while await reader.read(5):
            writer.write(own.encode())
    writer.close()


def answer_datagram(server: socket.socket) -> None:
    _, client = server.recvfrom(100)
    server.sendto(server.getsockname()[0].encode(), client)


async def serve(world: World) -> list[asyncio.Server | socket.socket]:
    made: list[asyncio.Server | socket.socket] = []
    for space, address in (("pod2", "10.1.0.3"), ("remote", "10.1.1.2")):
        listener = world.socket(space, address, socket.SOCK_STREAM, ECHO_PORT)
        listener.listen(512)
        made.append(await asyncio.start_server(answer, sock=listener))
        datagrams = world.socket(space, address, socket.SOCK_DGRAM, ECHO_PORT)
        asyncio.get_running_loop().add_reader(datagrams, answer_datagram, datagrams)
        made.append(datagrams)
    return made


def make_service(api: Api) -> tuple[str, int]:
    ports = [
        {"name": name.lower(), "port": 80, "protocol": name, "targetPort": ECHO_PORT, "nodePort": 30080}
        for name in ("TCP", "UDP")
    ]
    made = api.service("walk", type="NodePort", ports=ports)
    follow_endpoints(api, ENDS)
    return str(made["spec"]["clusterIP"]), 30080


def follow_endpoints(api: Api, ends: tuple[str, ...]) -> None:
    api.put(
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/walk-1",
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "walk-1",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "walk"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [end], "conditions": {"ready": True}, "nodeName": "kdns"} for end in ends],
            "ports": [{"name": name.lower(), "port": ECHO_PORT, "protocol": name} for name in ("TCP", "UDP")],
        },
    )


@contextmanager
def cluster(folder: Path) -> Iterator[Api]:
    made = start("up", "--dns", "127.0.0.1:0", "--api", "127.0.0.1:0", "--kubeconfig", "kc", folder=folder)
    made.wait_for("ready")
    yield Api(made.wait_for("api ").split()[1])
    assert made.stop() == 0


@asynccontextmanager
async def echoing(world: World) -> AsyncIterator[None]:
    servers = await serve(world)
    yield
    for server in servers:
        if isinstance(server, socket.socket):
            asyncio.get_running_loop().remove_reader(server)
        server.close()


async def walk(world: World, folder: Path, steps: Sequence[Step], *, by_restart: bool, pause_s: float = 0.05) -> Load:
    """What clients met while a node went from the first mode to all others, and ended.

    Each client waits for `pause_s` between two connections.
    """
    with cluster(folder) as api:
        async with echoing(world):
            return await _walk(world, api, folder, steps, by_restart=by_restart, pause_s=pause_s)


async def _walk(
    world: World, api: Api, folder: Path, steps: Sequence[Step], *, by_restart: bool, pause_s: float
) -> Load:
    world.forget()
    at = steps[0]
    configure(folder, at)
    vip, node_port = make_service(api)
    node = await started(folder)
    load, patient = Load(world, vip, node_port, pause_s=pause_s), list[Patient]()
    try:
        await reached(load, at)
        for mode in steps[1:]:
            load.phase = f"{' '.join(at)} to {' '.join(mode)}"
            patient.append(await made_now(load, at))
            async with nullcontext() if at in RELAYING else load.running():
                syncs = node.lines.count("ready\n")
                configure(folder, mode)
                if by_restart:
                    assert await asyncio.to_thread(node.stop) == 0
                    await still(load, patient)
                    node = await started(folder)
                else:
                    await until(True, partial(has_synced, node, syncs + 1))
                at = mode
                await reached(load, at, {"ipvs"} if any(each.since == IPVS for each in patient) else set())
                await still(load, patient)
            for ends in (ENDS[:1], ENDS):  # the mode follows the cluster
                follow_endpoints(api, ends)
                await only(load, ends)
    finally:
        for each in patient:
            each.client.close()
        if node.process.poll() is None:
            assert await asyncio.to_thread(node.stop) == 0
    assert not [line for line in node.lines if "Traceback" in line], node.lines
    return load


def configure(folder: Path, step: Step) -> None:
    """Let the configuration file say so, which is never there in parts only."""
    prefer(step[1])
    new = folder / "config.new"
    new.write_text(SETTINGS.format(mode=step[0]))
    new.replace(folder / "config.yaml")


def cleaned(folder: Path) -> list[str]:
    prefer("")
    command = [KDNS, "proxy", "--cleanup"]
    ended = subprocess.run(command, check=True, cwd=folder, capture_output=True, text=True)
    print(ended.stderr)  # what it warned of, for a test that fails
    said = ended.stdout
    return [line.removeprefix("removed").strip() for line in said.splitlines()]


async def has_synced(node: Started, times: int) -> bool:
    return node.lines.count("ready\n") >= times


async def started(folder: Path) -> Started:
    node = start("proxy", "--config", "config.yaml", folder=folder)
    await asyncio.to_thread(node.wait_for, "ready")
    return node


async def made_now(load: Load, at: Step) -> Patient:
    client = await load.connect(*CLIENTS[0], socket.SOCK_STREAM, (load.vip, 80))
    return Patient(client, await load.echo(client), at)


async def still(load: Load, patient: list[Patient]) -> None:
    """Connections of all modes before are where they were, and those of relays have ended."""
    for each in patient:
        async with asyncio.timeout(ANSWER_S):
            if each.since in RELAYING:
                with pytest.raises(ConnectionError):
                    await load.echo(each.client)
            else:
                assert await load.echo(each.client) == each.end, each


async def reached(load: Load, mode: Step, lingering: AbstractSet[str] = frozenset()) -> None:
    """The mode is at work, and nothing is left of others but what connections need that stay."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        found, left = (await asyncio.to_thread(fetched, f"{METRICS}/proxyMode"))[1], set[str]()
        if found == mode[0]:
            left = await asyncio.to_thread(rules)
            if left | lingering == IN_THE_KERNEL[mode] | lingering:
                return
        assert time.monotonic() < deadline_s, f"{load.phase}: {found} {left}"
        await asyncio.sleep(LOOK_S)


async def only(load: Load, ends: tuple[str, ...]) -> None:
    """New connections lead to these endpoints, and to each of them."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        found = set()
        for _ in range(8):
            with await load.connect(*CLIENTS[0], socket.SOCK_STREAM, (load.vip, 80)) as client:
                found.add(await load.echo(client))
        if found == set(ends):
            return
        assert time.monotonic() < deadline_s, f"{load.phase}: {found}"
