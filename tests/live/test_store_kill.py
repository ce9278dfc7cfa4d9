"""kill -9 under concurrent writes: what was acknowledged is there after a restart, and no address is given twice."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

import aiohttp

ROUNDS, WRITERS = 4, 8
SERVICES = "/api/v1/namespaces/default/services"
SERVER = """
import asyncio, random, sys, time, uuid
from pathlib import Path
from kdns.aio import rest
from kdns.aio.rest_guard import RestConfig
from kdns.aio.sqlite import open_journal
from kdns.controlplane.api import Api
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.kinds import NAMESPACE
from kdns.controlplane.store import Store
from kdns.controlplane.strategy import Strategies

async def main():
    journal = open_journal(Path(sys.argv[1]))
    store = Store(journal.objects, revision=journal.revision, persist=journal.append)
    api = Api(store, Strategies(ClusterConfig(), random.randrange), time.time, lambda: str(uuid.uuid4()), lambda: "x")
    if not api.list(NAMESPACE, None).items:
        api.create(NAMESPACE, "", {"metadata": {"name": "default"}})
    server = await rest.start(api, RestConfig(port=0), journal.durable)
    print(server.address[1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def started(data: Path) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(data), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    async with asyncio.timeout(30):
        port = int(await process.stdout.readline())
    return process, f"http://127.0.0.1:{port}"


async def write(
    session: aiohttp.ClientSession, prefix: str, acknowledged: dict[str, int], enough: asyncio.Event
) -> None:
    """Create Services one after the other until the server is gone; note each that was answered."""
    for number in range(10_000):
        name = f"{prefix}-{number}"
        try:
            body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
            async with session.post(SERVICES, json=body) as response:
                created = await response.json()
                assert response.status == 201, created
        except aiohttp.ClientError:
            return
        acknowledged[name] = int(created["metadata"]["resourceVersion"])
        if len(acknowledged) >= 50:
            enough.set()


async def test_acknowledged_writes_survive(tmp_path: Path) -> None:
    expected: dict[str, int] = {}
    for turn in range(ROUNDS):
        process, url = await started(tmp_path)
        acknowledged: dict[str, int] = {}
        enough = asyncio.Event()
        async with aiohttp.ClientSession(url) as session, asyncio.timeout(60):
            async with session.get(SERVICES) as response:
                found = await response.json()
            revisions = {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in found["items"]}
            assert expected.items() <= revisions.items(), "an acknowledged write is missing or changed"
            addresses = Counter(item["spec"]["clusterIP"] for item in found["items"])
            assert not addresses or max(addresses.values()) == 1
            assert int(found["metadata"]["resourceVersion"]) > max(expected.values(), default=0)
            writers = [write(session, f"s{turn}-{writer}", acknowledged, enough) for writer in range(WRITERS)]
            running = asyncio.gather(*writers)
            await enough.wait()
            await asyncio.sleep(random.uniform(0, 0.05))
            process.kill()
            await running
        await process.wait()
        assert len(set(acknowledged.values())) == len(acknowledged)
        assert not set(acknowledged.values()) & set(expected.values()), "a revision was given twice"
        expected |= acknowledged
    assert len(expected) >= ROUNDS * 50
