"""A proxy that is started again when the cluster is another one, and changes without pause: as if made afresh."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from contextlib import suppress
from typing import Any, Final

import pytest
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.aio.dataplane.nftables.proxier import NftablesProxier, clean_up
from kdns.cluster.objects import Object
from kdns.errors import ApplyError
from kdns.net import FAMILIES
from kdns.proxy.nftables.objects import NFT_FAMILY, TABLE
from kdns.proxy.plan.planner import Planner, plan

SERVICES: Final = range(1, 3)
ENDS: Final = ("p1", "p2", "r1", "r2")
CLIENTS: Final = {"IPv4": "192.0.2.7", "IPv6": "2001:db8:2::7"}
ROUNDS: Final = 4
DEADLINE_S: Final = 20.0

BEFORE: Final = (ENDS, {"sessionAffinity": "ClientIP"})
AFTER: Final[dict[str, tuple[Any, ...]]] = {
    "nothing else": (*BEFORE, 2, 4),
    "fewer endpoints": (("p1", "r2"), {"sessionAffinity": "ClientIP"}, 2, 4),
    "no endpoint": ((), {"sessionAffinity": "ClientIP"}, 2, 0),
    "no affinity": (ENDS, {"sessionAffinity": "None"}, 2, 0),
    "another timeout": (
        ENDS,
        {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}},
        2,
        4,
    ),
    "other policies": (ENDS, {"sessionAffinity": "ClientIP", "internal": "Local", "external": "Local"}, 2, 4),
    "fewer Services": (*BEFORE, 1, 2),
    "no Service": (*BEFORE, 0, 0),
}
"""What it is when the proxy comes back: endpoints, specification, how many Services, and how many clients they keep."""


def objects(ends: tuple[str, ...], spec: dict[str, Any], count: int = 2) -> list[Object]:
    return [
        each
        for number in SERVICES[:count]
        for each in service(number, endpoints(number, *ends), protocols=["TCP"], **spec)
    ]


@pytest.mark.parametrize("kind", AFTER)
def test_takeover(loop: asyncio.AbstractEventLoop, kind: str) -> None:
    *cluster, clients = AFTER[kind]
    before, after = (plan(state(objects(*each)), NODE_VIEW, CONFIG) for each in (BEFORE, cluster))

    async def take_over() -> tuple[list[list[str]], list[list[str]]]:
        await clean_up()
        await NftablesProxier().sync_full(before)
        add_clients()
        assert kept() == 4
        await NftablesProxier().sync_full(after)
        assert kept() == clients
        taken = listed()
        await clean_up()
        await NftablesProxier().sync_full(after)
        return taken, listed()

    taken, fresh = loop.run_until_complete(take_over())
    assert taken == fresh


@pytest.mark.parametrize("affinity", ["None", "ClientIP"])
def test_changes_without_pause(loop: asyncio.AbstractEventLoop, affinity: str) -> None:
    spec = {"sessionAffinity": affinity}
    known = state(objects(ENDS, spec))

    async def change() -> None:
        await clean_up()
        planner, mode = Planner(known, NODE_VIEW, CONFIG), NftablesProxier()
        await mode.sync_full(planner.plan)
        for number in range(ROUNDS):
            for ends in (ENDS[: number % 4], ENDS[1:], ENDS):
                changes = [done for each in objects(ends, spec) if (done := known.upsert(each))]
                await mode.sync_partial(planner.plan, planner.changed(changes))
                add_clients()
                with suppress(ApplyError):  # a kernel may remember for a moment what led here
                    await mode.sweep()
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                if not await mode.sweep():
                    return
            except ApplyError:
                assert time.monotonic() < deadline_s
                await asyncio.sleep(0.1)

    loop.run_until_complete(change())
    followed = listed()
    loop.run_until_complete(clean_up())
    loop.run_until_complete(NftablesProxier().sync_full(plan(known, NODE_VIEW, CONFIG)))
    assert followed == listed()


def table(family: str) -> list[dict[str, Any]]:
    command = ["nft", "-j", "list", "table", family, TABLE]
    rows: list[dict[str, Any]] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["nftables"]
    return rows


def affinity_maps(family: str) -> list[dict[str, Any]]:
    found = [row["map"] for row in table(family) if "map" in row]
    return [each for each in found if each["name"].startswith("affinity-")]


def add_clients() -> None:
    """Let every map of affinity hold a client."""
    lines = [
        f"add element {NFT_FAMILY[family]} {TABLE} {each['name']} {{ {CLIENTS[family]} timeout 1h : 1:10 }}"
        for family in FAMILIES
        for each in affinity_maps(NFT_FAMILY[family])
    ]
    subprocess.run(["nft", "-f", "-"], input="\n".join(lines), text=True, check=True)


def kept() -> int:
    return sum(bool(each.get("elem")) for family in FAMILIES for each in affinity_maps(NFT_FAMILY[family]))


def listed() -> list[list[str]]:
    """Both tables in words, without what was counted, who the clients are, and the order of names."""
    found = []
    for family in FAMILIES:
        command = ["nft", "-s", "list", "table", NFT_FAMILY[family], TABLE]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        blocks = re.split(r"\n\t}\n+", text)
        found.append(sorted(block for block in blocks if "map affinity-" not in block))
    return found
