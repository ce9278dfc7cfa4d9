"""No packet falls between two rulesets: tens of thousands of new flows a second while the rules change all the time.

A packet that met its Service's rules before a change and their endpoints after it would keep the virtual IP as its
destination. The node would forward it so, and a counter of others sees that it forwards none.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from small_cluster import CLIENTS, CONFIG, NODE_VIEW, both, endpoints, service, state
from world import World

from kdns.aio import nft
from kdns.aio.conntrack import udp_flows
from kdns.aio.nftablesmode import NftablesMode
from kdns.proxy.planner import Planner

LONG_S: Final = 4.0
TIDY_EVERY_S: Final = 1.0
VIP: Final = both("vip", 1)[0]
SEEN: Final = (
    f"table ip others {{\nchain seen {{ type filter hook forward priority -1; ip daddr {VIP} counter; }}\n}}\n"
)
SEND: Final = """
import itertools, socket, sys
for port in itertools.cycle(range(1024, 65000)):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind((sys.argv[1], port))
        client.sendto(b"hello", (sys.argv[2], 80))
"""
CHANGES: Final = {
    "more and fewer endpoints": (("p1",), ("p1", "p2", "r1", "r2")),
    "other endpoints": (("p1", "p2", "r1"), ("p2", "r1", "r2")),
    "the proxy starts again": (),
}


@contextmanager
def clients(world: World) -> Iterator[None]:
    """Clients outside, as many as can be, who send one datagram each."""
    for knob in ("udp_timeout", "udp_timeout_stream"):  # a port may come again
        Path(f"/proc/sys/net/netfilter/nf_conntrack_{knob}").write_text("1")
    command = ["ip", "netns", "exec", world.names["outside"], sys.executable, "-c", SEND, CLIENTS["outside"][0], VIP]
    with subprocess.Popen(command) as sending:
        try:
            yield
        finally:
            sending.terminate()


@pytest.mark.parametrize("affinity", ["None", "ClientIP"])
@pytest.mark.parametrize("kind", CHANGES)
def test_no_packet_falls_between(world: World, loop: asyncio.AbstractEventLoop, kind: str, affinity: str) -> None:
    world.forget()
    with clients(world):
        loop.run_until_complete(change(CHANGES[kind], affinity))
    listed = subprocess.run(["nft", "-j", "list", "table", "ip", "others"], capture_output=True, check=True).stdout
    (rule,) = (row["rule"] for row in json.loads(listed)["nftables"] if "rule" in row)
    subprocess.run(["nft", "delete", "table", "ip", "others"], check=True)
    assert [part["counter"]["packets"] for part in rule["expr"] if "counter" in part] == [0]
    assert len(udp_flows("IPv4")) > 1000


async def change(ends: tuple[tuple[str, ...], ...], affinity: str) -> None:
    """Let the endpoints be these in turn, as fast as can be, or start again and again."""
    known = state(service(1, endpoints(1, "p1", "p2", "r1", "r2"), sessionAffinity=affinity))
    planner, mode = Planner(known, NODE_VIEW, CONFIG), NftablesMode()
    await mode.establish(planner.plan)
    await nft.apply(SEEN)
    tidy_s = time.monotonic()
    until_s = tidy_s + LONG_S
    while time.monotonic() < until_s:
        if not ends:
            await NftablesMode().establish(planner.plan)
        for each in ends:
            changes = [done for one in endpoints(1, *each) if (done := known.upsert(one))]
            differences = planner.changed(changes)
            await mode.follow(planner.plan, differences)
        if time.monotonic() - tidy_s > TIDY_EVERY_S:
            await mode.tidy()
            tidy_s = time.monotonic()
