"""A proxy that is started again when the cluster is another one, and changes without pause: as if made afresh."""

import asyncio
import json
import re
import subprocess
from typing import Any, Final

import pytest
from small_cluster import endpoints, planned, service

from kdns.cluster.objects import Object
from kdns.net import FAMILIES
from kdns.proxy.nftables.io.proxier import NftablesProxier, clean_up
from kdns.proxy.nftables.objects import NFT_FAMILY, TABLE
from kdns.proxy.nftables.sets import CLIENTS as SET

SERVICES: Final = range(1, 3)
ENDS: Final = ("p1", "p2", "r1", "r2")
CLIENTS: Final = {"IPv4": "192.0.2.7", "IPv6": "7"}

BEFORE: Final = (ENDS, {"sessionAffinity": "ClientIP"})
AFTER: Final[dict[str, tuple[Any, ...]]] = {
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
"""What it is when the proxy comes back: endpoints, specification, and how many Services."""


def objects(ends: tuple[str, ...], spec: dict[str, Any], count: int = 2) -> list[Object]:
    return [
        each
        for number in SERVICES[:count]
        for each in service(number, endpoints(number, *ends), protocols=["TCP"], **spec)
    ]


@pytest.mark.parametrize("kind", AFTER)
def test_takeover(loop: asyncio.AbstractEventLoop, kind: str) -> None:
    before, after = (planned(objects(*each)) for each in (BEFORE, AFTER[kind]))

    async def take_over() -> tuple[list[list[str]], list[list[str]]]:
        await clean_up()
        await NftablesProxier().sync_full(before)
        add_clients()
        await NftablesProxier().sync_full(after)
        assert clients() == CLIENTS
        taken = listed()
        await clean_up()
        await NftablesProxier().sync_full(after)
        return taken, listed()

    taken, fresh = loop.run_until_complete(take_over())
    assert taken == fresh


def table(family: str) -> list[dict[str, Any]]:
    command = ["nft", "-j", "list", "table", family, TABLE]
    rows: list[dict[str, Any]] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["nftables"]
    return rows


def add_clients() -> None:
    """Let the map of clients hold one in each family."""
    lines = [
        f"add element {NFT_FAMILY[family]} {TABLE} {SET.name} {{ {CLIENTS[family]} . 1:0 timeout 1h : 1:10 }}"
        for family in FAMILIES
    ]
    subprocess.run(["nft", "-f", "-"], input="\n".join(lines), text=True, check=True)


def clients() -> dict[str, str]:
    """The clients that the maps hold, which is one for each family."""
    rows = [(family, row["map"]) for family in FAMILIES for row in table(NFT_FAMILY[family]) if "map" in row]
    return {
        family: str(row["elem"][0][0]["elem"]["val"]["concat"][0]) for family, row in rows if row["name"] == SET.name
    }


def listed() -> list[list[str]]:
    """Both tables in words, without what was counted, who the clients are, and the order of names."""
    found = []
    for family in FAMILIES:
        command = ["nft", "-s", "list", "table", NFT_FAMILY[family], TABLE]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        blocks = re.split(r"\n\t}\n+", text)
        found.append(sorted(block for block in blocks if f"map {SET.name}" not in block))
    return found
