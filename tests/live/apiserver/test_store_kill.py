"""kill -9 under concurrent writes, again and again: acknowledged writes are there after the restart, and nothing twice.

Writers create, change and delete Services, each its own names and one request at a time. So what a name must
look like afterwards is known: the last answer says it, or the request that got none.
"""

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest

Json: TypeAlias = dict[str, Any]

WRITES, WRITERS, NAMES = 200, 8, 40
"""Writes of a round; names of a writer."""
SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
OWN = frozenset({"kubernetes"})
MERGE = "application/merge-patch+json"
SERVER = """
import asyncio, sys
from pathlib import Path
from kdns.controlplane.io.local_cluster import LocalCluster
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.cluster_config import ClusterConfig

async def main():
    cluster = LocalCluster(ClusterConfig(), RestConfig(port=0), Path(sys.argv[1]))
    await cluster.start()
    print(cluster.address[1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
SPEC = {"type": "NodePort", "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]}


@dataclass(frozen=True)
class Write:
    """A request on a name, and what the object must look like where it was done; None: gone."""

    method: str
    path: str
    body: Json | None
    name: str
    seen: str | None


def looks(obj: Json | None) -> str | None:
    """What the tests' writes change: the counter."""
    return None if obj is None else obj["metadata"]["annotations"]["n"]


@dataclass
class Writer:
    """One connection's writes. `acknowledged` is the last answer for each name, `pending` what got none."""

    prefix: str
    choose: random.Random
    acknowledged: dict[str, Json | None] = field(default_factory=dict)
    pending: Write | None = None
    number: int = 0
    done: int = 0

    def next(self) -> Write:
        self.number += 1
        name = f"{self.prefix}-{self.choose.randrange(NAMES)}"
        path, known = f"{SERVICES}/{name}", self.acknowledged.get(name)
        metadata = {"annotations": {"n": str(self.number)}}
        if known is None:
            body = {"metadata": {"name": name, **metadata}, "spec": SPEC}
            return Write("POST", SERVICES, body, name, str(self.number))
        match self.choose.choice(["DELETE", "PUT", "PATCH"]):
            case "DELETE":
                return Write("DELETE", path, None, name, None)
            case "PATCH":
                return Write("PATCH", path, {"metadata": metadata}, name, str(self.number))
            case _:
                body = {**known, "metadata": {**known["metadata"], **metadata}}
                return Write("PUT", path, body, name, str(self.number))

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Write until the server is gone."""
        with suppress(aiohttp.ClientError, ConnectionError):
            while True:
                write = self.pending = self.next()
                headers = {"Content-Type": MERGE if write.method == "PATCH" else "application/json"}
                data = json.dumps(write.body) if write.body else None
                async with session.request(write.method, write.path, data=data, headers=headers) as response:
                    answer = await response.json()
                assert response.status in {200, 201}, (write, answer)
                self.acknowledged[write.name] = None if write.method == "DELETE" else answer
                self.pending = None
                self.done += 1

    def may_be_gone(self) -> Iterator[str]:
        """The names whose deletion was asked for."""
        yield from (name for name, known in self.acknowledged.items() if known is None)
        if self.pending and self.pending.seen is None:
            yield self.pending.name

    def check(self, found: dict[str, Json]) -> None:
        """What the answers said is there; what got no answer was done whole or not at all."""
        pending, self.pending = self.pending, None
        for name, known in self.acknowledged.items():
            there = found.get(name)
            if pending and name == pending.name and looks(there) == pending.seen:
                continue
            assert looks(there) == looks(known), f"{name}: an acknowledged write is missing"
            if there and known:
                assert there["metadata"]["uid"] == known["metadata"]["uid"]
                assert there["spec"] == known["spec"]
        if pending and pending.name not in self.acknowledged:
            assert looks(found.get(pending.name)) in {None, pending.seen}
        mine = {name: obj for name, obj in found.items() if name.startswith(f"{self.prefix}-")}
        assert mine.keys() <= {*self.acknowledged, *([pending.name] if pending else [])}
        self.acknowledged = dict(mine)


@dataclass
class Watcher:
    """A client that lists once and watches; across restarts it resumes from the last revision it saw."""

    objects: dict[str, int] = field(default_factory=dict)
    revision: str = ""
    lists: int = 0
    has_followed: bool = False

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Follow until the server is gone."""
        self.has_followed = False
        with suppress(aiohttp.ClientError, ConnectionError):
            while True:
                if not self.revision:
                    await self._list(session)
                query = f"watch=1&allowWatchBookmarks=true&resourceVersion={self.revision}"
                async with session.get(f"{SERVICES}?{query}") as response:
                    assert response.status == 200
                    async for line in response.content:
                        self._follow(json.loads(line))

    async def _list(self, session: aiohttp.ClientSession) -> None:
        self.lists += 1
        async with session.get(SERVICES) as response:
            found = await response.json()
        self.objects = {name: int(obj["metadata"]["resourceVersion"]) for name, obj in by_name(found).items()}
        self.revision = found["metadata"]["resourceVersion"]

    def _follow(self, event: Json) -> None:
        assert event["type"] != "ERROR", event
        metadata = event["object"]["metadata"]
        assert int(metadata["resourceVersion"]) > int(self.revision) or event["type"] == "BOOKMARK"
        self.revision, self.has_followed = metadata["resourceVersion"], True
        if event["type"] == "DELETED":
            del self.objects[metadata["name"]]
        elif event["type"] != "BOOKMARK":
            self.objects[metadata["name"]] = int(self.revision)

    def check(self, found: dict[str, Json], may_be_gone: set[str]) -> None:
        """Nothing was shown that a crash took back."""
        for name, revision in self.objects.items():
            there = found.get(name)
            if there is None:
                assert name in may_be_gone, f"{name}: shown at {revision} and lost"
            else:
                assert int(there["metadata"]["resourceVersion"]) >= revision

    async def check_resumed(self, session: aiohttp.ClientSession) -> None:
        """The events since the last revision lead to what a list has."""
        async with session.get(SERVICES) as response:
            found = await response.json()
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion={self.revision}"
        async with session.get(f"{SERVICES}?{query}") as response:
            async for line in response.content:
                self._follow(json.loads(line))
        assert int(self.revision) >= int(found["metadata"]["resourceVersion"])
        assert self.objects == {name: int(obj["metadata"]["resourceVersion"]) for name, obj in by_name(found).items()}


def by_name(found: Json) -> dict[str, Json]:
    return {item["metadata"]["name"]: item for item in found["items"]}


def addresses(services: dict[str, Json]) -> dict[str, str]:
    return {ip: name for name, obj in services.items() for ip in obj["spec"]["clusterIPs"]}


def node_ports(services: dict[str, Json]) -> Iterator[int]:
    yield from (port["nodePort"] for obj in services.values() for port in obj["spec"]["ports"] if "nodePort" in port)


def twice(values: Iterator[Any]) -> list[Any]:
    return [value for value, times in Counter(values).items() if times > 1]


async def started(data: Path) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(data), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    async with asyncio.timeout(90):
        port = int(await process.stdout.readline())
    return process, f"http://127.0.0.1:{port}"


async def services(session: aiohttp.ClientSession) -> dict[str, Json]:
    async with session.get(SERVICES) as response:
        return by_name(await response.json())


async def killed_within(
    process: asyncio.subprocess.Process,
    session: aiohttp.ClientSession,
    writers: list[Writer],
    watcher: Watcher,
    most: int,
) -> None:
    """Let all of them work until there were that many writes, and events, then kill the server at some moment."""
    runs = [writer.run(session) for writer in writers]
    running = [asyncio.create_task(run) for run in (*runs, watcher.run(session))]
    while sum(writer.done for writer in writers) < most or not watcher.has_followed:
        finished, _ = await asyncio.wait(running, timeout=random.uniform(0.001, 0.02))
        if finished:
            break
    process.kill()
    await asyncio.gather(*running)


async def address_objects(session: aiohttp.ClientSession) -> dict[str, str]:
    """Whose each address is, by the IPAddress objects of Services in the namespace default."""
    async with session.get(ADDRESSES) as response:
        found = {name: obj["spec"]["parentRef"] for name, obj in by_name(await response.json()).items()}
    return {name: parent["name"] for name, parent in found.items() if parent["namespace"] == "default"}


@pytest.mark.parametrize("rounds", [4, pytest.param(20, marks=pytest.mark.release)])
async def test_acknowledged_writes_survive(tmp_path: Path, rounds: int) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print("seed", seed)
    writers = [Writer(f"w{number}", random.Random(seed + number)) for number in range(WRITERS)]
    watcher = Watcher()
    for turn in range(rounds + 1):
        process, url = await started(tmp_path)
        async with aiohttp.ClientSession(url) as session, asyncio.timeout(180):
            found = await services(session)
            watcher.check(found, {name for writer in writers for name in writer.may_be_gone()})
            for writer in writers:
                writer.check({name: obj for name, obj in found.items() if name not in OWN})
            assert len(addresses(found)) == len(found)
            assert not twice(node_ports(found))
            assert await address_objects(session) == addresses(found)
            assert not twice(obj["metadata"]["uid"] for obj in found.values())
            if turn < rounds:
                await killed_within(process, session, writers, watcher, WRITES * (turn + 1))
            else:
                await watcher.check_resumed(session)
                process.kill()
        await process.wait()
    assert sum(writer.done for writer in writers) >= WRITES * rounds
    assert watcher.lists == 1, "each watch resumed after a crash"
