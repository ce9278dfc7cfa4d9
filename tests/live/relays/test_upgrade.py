"""An upgrade of kdns and the way back, with queries under way.

Each Pod is a process on an address of its own, behind a virtual IP of the dataplane. As in a Deployment, a new Pod gets
queries when /ready says so, and then an old one is told to stop, a moment before the rules know. The versions differ in
the TTL of their answers.
"""

import asyncio
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from dns_client import Tcp, Udp, packet, read
from kdns_process import DEADLINE_S, kdns_up
from relay_rig import VIP, Rig, free_port, rig, service, until

OLD_TTL_S, NEW_TTL_S = 11, 22
QUERIES_EVERY_S = 0.01
TCP_EVERY = 10
"""Of so many queries one is over TCP."""
LATE_QUERIES = 20
"""Queries between the end of a Pod's readiness and the rules that know of it."""
LAMEDUCK_S = 3600
"""A Pod that was told to stop answers until the test kills it, however busy the machine is."""
NAME = "web.default.svc.cluster.local"
WEB = "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}"
PORT, HEALTH, READY = 5300, 8080, 8181
COREFILE = """
.:{port} {{
    bind {address}
    health {address}:{health} {{
        lameduck {lameduck}s
    }}
    ready {address}:{ready}
    kubernetes cluster.local {{
        endpoint {api}
        ttl {ttl}
    }}
}}
"""


@dataclass
class Pod:
    """A process of kdns with the address of its Pod."""

    address: str
    process: asyncio.subprocess.Process

    async def end(self) -> None:
        """Wait until it has ended by itself."""
        async with asyncio.timeout(DEADLINE_S):
            assert await self.process.wait() == 0


@dataclass
class Pods:
    """Starts Pods, in a folder, for one API."""

    folder: Path
    api: str
    stack: AsyncExitStack
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    async def start(self, ttl_s: int, address: str = "", *, lameduck_s: int = LAMEDUCK_S) -> Pod:
        """A Pod that says that it is ready."""
        pod = await self.begin(ttl_s, address or f"127.77.0.{next(self.numbers)}", lameduck_s)
        async with asyncio.timeout(DEADLINE_S):
            while not await is_ready(pod.address):
                assert pod.process.returncode is None, pod.address
                await asyncio.sleep(0.02)
        return pod

    async def begin(self, ttl_s: int, address: str, lameduck_s: int) -> Pod:
        corefile = self.folder / f"Corefile-{address}-{ttl_s}"
        text = COREFILE.format(
            address=address, port=PORT, health=HEALTH, ready=READY, lameduck=lameduck_s, api=self.api, ttl=ttl_s
        )
        corefile.write_text(text)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kdns", "serve", "--conf", str(corefile), "-quiet"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        self.stack.callback(killed, process)
        return Pod(address, process)


def killed(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()


async def is_ready(address: str) -> bool:
    """Whether /ready is 200."""
    try:
        reader, writer = await asyncio.open_connection(address, READY)
        writer.write(b"GET /ready HTTP/1.0\r\n\r\n")
        status = await reader.readline()
        writer.close()
    except OSError:
        return False
    return b" 200 " in status


@dataclass
class Load:
    """Queries at a steady rate, each from a port of its own, and what came of them: TTLs, or the error."""

    host: str
    port: int
    done: Counter[int | str] = field(default_factory=Counter)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    is_over: bool = False

    async def run(self) -> None:
        for number in count():
            if self.is_over:
                break
            task = asyncio.create_task(self.query(is_tcp=number % TCP_EVERY == 0))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
            await asyncio.sleep(QUERIES_EVERY_S)
        await asyncio.gather(*self.tasks)

    async def query(self, *, is_tcp: bool) -> None:
        query = packet(NAME)
        try:
            if is_tcp:
                async with await Tcp.connect(self.port, self.host) as client:
                    answer = await client.ask(query)
            else:
                with Udp(self.port, self.host) as client:
                    answer = await client.ask(query)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.done[type(error).__name__] += 1
        else:
            (record,) = read(answer).rr
            self.done[record.ttl] += 1

    async def settled(self) -> None:
        """Wait for what comes of the queries so far."""
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*self.tasks)

    async def finished(self, running: asyncio.Task[None]) -> Counter[int | str]:
        """What came of all queries."""
        self.is_over = True
        async with asyncio.timeout(DEADLINE_S):
            await running
        return self.done


@pytest.fixture
async def pods(tmp_path: Path) -> AsyncIterator[Pods]:
    (tmp_path / "web.yaml").write_text(WEB)
    with kdns_up(tmp_path, "web.yaml") as up:
        api = up.wait_for(r"^api +(http://\S+)")[1]
        async with AsyncExitStack() as stack:
            yield Pods(tmp_path, api, stack)


@asynccontextmanager
async def kube_dns() -> AsyncIterator[tuple[Rig, int]]:
    async with rig() as made:
        yield made, free_port(kind=socket.SOCK_DGRAM)


async def behind(made: Rig, port: int, pods: list[Pod]) -> None:
    """Let the rules have these Pods."""
    pairs = [(pod.address, PORT) for pod in pods]
    for protocol in ("UDP", "TCP"):
        await made.have(service(f"kube-dns-{protocol.lower()}", port, protocol), *pairs)


async def roll_out(pods: Pods, made: Rig, load: Load, running: list[Pod], ttl_s: int) -> list[Pod]:
    """Replace the Pods one by one."""
    replaced = list(running)
    for old in running:
        replaced.append(await pods.start(ttl_s))
        await behind(made, load.port, replaced)
        replaced.remove(old)
        old.process.terminate()
        late = load.done.total() + LATE_QUERIES
        await until(lambda: load.done.total() >= late)  # noqa: B023 - awaited at once
        await behind(made, load.port, replaced)
    return replaced


async def test_no_query_is_lost_in_an_upgrade_and_a_rollback(pods: Pods) -> None:
    async with kube_dns() as (made, port):
        running = [await pods.start(OLD_TTL_S), await pods.start(OLD_TTL_S)]
        await behind(made, port, running)
        load = Load(VIP, port)
        task = asyncio.create_task(load.run())
        await until(lambda: load.done[OLD_TTL_S] > TCP_EVERY)
        running = await roll_out(pods, made, load, running, NEW_TTL_S)
        await load.settled()
        old = load.done[OLD_TTL_S]
        await until(lambda: load.done[NEW_TTL_S] > old)
        assert load.done[OLD_TTL_S] == old
        running = await roll_out(pods, made, load, running, OLD_TTL_S)
        await load.settled()
        new = load.done[NEW_TTL_S]
        await until(lambda: load.done[OLD_TTL_S] > old + 2 * TCP_EVERY)
        done = await load.finished(task)
    assert done.keys() == {OLD_TTL_S, NEW_TTL_S}
    assert done[NEW_TTL_S] == new


async def test_a_server_leaves_its_address_to_the_next_one(pods: Pods) -> None:
    old = await pods.start(OLD_TTL_S, "127.77.1.1", lameduck_s=0)
    second = await pods.begin(NEW_TTL_S, old.address, 0)
    assert second.process.stderr
    async with asyncio.timeout(DEADLINE_S):
        said = (await second.process.stderr.read()).decode()
    assert "Address already in use" in said
    assert f"(process {old.process.pid})" in said
    assert await second.process.wait() == 1
    async with await Tcp.connect(PORT, old.address) as client:
        assert read(await client.ask(packet(NAME))).rr[0].ttl == OLD_TTL_S
        old.process.terminate()  # it closes the connection, whose end keeps the address for a while
        await old.end()
    new = await pods.start(NEW_TTL_S, old.address, lameduck_s=0)
    with Udp(PORT, new.address) as udp:
        assert read(await udp.ask(packet(NAME))).rr[0].ttl == NEW_TTL_S
    new.process.terminate()
    await new.end()
