"""A proxy that is started again, and changes without pause, on a kernel that keeps references of what is deleted.

Kernels before 6.2 forget deleted elements only a moment later, and until then what these led to cannot be deleted.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from typing import Any, Final

import pytest
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.aio.nftablesmode import NftablesMode, clean_up
from kdns.cluster.objects import Object
from kdns.errors import ApplyError
from kdns.proxy.config import FAMILIES
from kdns.proxy.nftables import NFT_FAMILY, TABLE
from kdns.proxy.planner import Planner, plan

SERVICES: Final = range(1, 3)
ENDS: Final = ("p1", "p2", "r1", "r2")
CLIENTS: Final = {"IPv4": "192.0.2.7", "IPv6": "2001:db8:2::7"}
ROUNDS: Final = 4
DEADLINE_S: Final = 20.0
"""Long enough for the kernel to forget, however slow it is."""

BEFORE: Final = (ENDS, {"sessionAffinity": "ClientIP"})
AFTER: Final[dict[str, tuple[tuple[str, ...], dict[str, Any], int]]] = {
    "nothing else": (*BEFORE, 2),
    "fewer endpoints": (("p1", "r2"), {"sessionAffinity": "ClientIP"}, 2),
    "no endpoint": ((), {"sessionAffinity": "ClientIP"}, 2),
    "no affinity": (ENDS, {"sessionAffinity": "None"}, 2),
    "another timeout": (
        ENDS,
        {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}},
        2,
    ),
    "other policies": (ENDS, {"sessionAffinity": "ClientIP", "internal": "Local", "external": "Local"}, 2),
    "fewer Services": (*BEFORE, 1),
    "no Service": (*BEFORE, 0),
}
"""What is different when the proxy comes back: endpoints, specification, and how many Services."""


def objects(ends: tuple[str, ...], spec: dict[str, Any], count: int = len(SERVICES)) -> list[Object]:
    return [
        each
        for number in SERVICES[:count]
        for each in service(number, endpoints(number, *ends), protocols=["TCP"], **spec)
    ]


@pytest.mark.parametrize("kind", AFTER)
def test_takeover(loop: asyncio.AbstractEventLoop, kind: str) -> None:
    before, after = (
        plan(state(objects(*BEFORE)), NODE_VIEW, CONFIG),
        plan(state(objects(*AFTER[kind])), NODE_VIEW, CONFIG),
    )

    async def take_over() -> tuple[list[list[str]], list[list[str]]]:
        await clean_up()
        await NftablesMode().establish(before)
        add_clients()
        began = kept()
        again = NftablesMode()
        await again.establish(after)
        print(kind, "clients", began, "->", kept())
        taken = listed()
        await clean_up()
        await NftablesMode().establish(after)
        return taken, listed()

    taken, fresh = loop.run_until_complete(take_over())
    assert taken == fresh


@pytest.mark.parametrize("affinity", ["None", "ClientIP"])
def test_changes_without_pause(loop: asyncio.AbstractEventLoop, affinity: str) -> None:
    spec = {"sessionAffinity": affinity}
    known = state(objects(ENDS, spec))

    async def change() -> None:
        await clean_up()
        planner, mode = Planner(known, NODE_VIEW, CONFIG), NftablesMode()
        await mode.establish(planner.plan)
        refused = 0
        for number in range(ROUNDS):
            for ends in (ENDS[: number % 4], ENDS[1:], ENDS):
                changes = [done for each in objects(ends, spec) if (done := known.upsert(each))]
                await mode.follow(planner.plan, planner.changed(changes))
                add_clients()
                try:
                    await mode.tidy()
                except ApplyError as error:
                    refused += 1
                    print("refused", str(error)[:150])
        print("refused", refused, "of", ROUNDS * 3)
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                if not await mode.tidy():
                    return
            except ApplyError:
                assert time.monotonic() < deadline_s
                await asyncio.sleep(0.1)

    loop.run_until_complete(change())
    followed = listed()
    loop.run_until_complete(clean_up())
    loop.run_until_complete(NftablesMode().establish(plan(known, NODE_VIEW, CONFIG)))
    assert followed == listed()


def table(family: str) -> list[dict[str, Any]]:
    command = ["nft", "-j", "list", "table", family, TABLE]
    rows: list[dict[str, Any]] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["nftables"]
    return rows


def affinity_sets(family: str) -> list[dict[str, Any]]:
    found = [row["set"] for row in table(family) if "set" in row]
    return [each for each in found if each["name"].startswith("affinity-")]


def add_clients() -> None:
    """Let every set of affinity hold a client."""
    lines = [
        f"add element {NFT_FAMILY[family]} {TABLE} {each['name']} {{ {CLIENTS[family]} }}"
        for family in FAMILIES
        for each in affinity_sets(NFT_FAMILY[family])
    ]
    subprocess.run(["nft", "-f", "-"], input="\n".join(lines), text=True, check=True)


def kept() -> int:
    return sum(bool(each.get("elem")) for family in FAMILIES for each in affinity_sets(NFT_FAMILY[family]))


def listed() -> list[list[str]]:
    """Both tables in words, without what was counted, who the clients are, and the order of names."""
    found = []
    for family in FAMILIES:
        command = ["nft", "-s", "list", "table", NFT_FAMILY[family], TABLE]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        blocks = re.split(r"\n\t}\n+", text)
        found.append(sorted(block for block in blocks if "set affinity-" not in block))
    return found
