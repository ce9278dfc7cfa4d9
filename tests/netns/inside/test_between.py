"""No packet falls between two rulesets: as many new flows as can be while the rules change all the time.

A packet that met its Service's rules before a change and their endpoints after it would keep the virtual IP as its
destination. The node would forward it so, and a counter of others sees that it forwards none.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from dataplanes import DATAPLANE, EXPLORES
from small_cluster import CLIENTS, CONFIG, NODE_VIEW, both, endpoints, service, state
from world import World

from kdns.cluster.objects import Object
from kdns.proxy.nftables.io import nft
from kdns.proxy.plan.planner import Planner

LONG_S: Final = 5.0 if EXPLORES else 0.6
"""Time for 18,000 packets and, in mode nftables, 9 changes: if each had a gap of 10 µs, one packet would meet it."""
TIDY_EVERY_S: Final = 1.0
ENOUGH: Final = 100
"""Packets that make a test."""
DEADLINE_S: Final = 60.0
VIP, BALANCER = both("vip", 1)[0], both("lb", 1)[0]
COUNTERS: Final = """
table ip others {{
    chain arrived {{ type filter hook prerouting priority -200; ip daddr {to} counter; }}
    chain missed {{ type filter hook forward priority -1; ip daddr {to} counter; }}
}}
"""
SEND: Final = """
import itertools, socket, sys
for port in itertools.cycle(range(1024, 65000)):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind((sys.argv[1], port))
        client.sendto(b"hello", (sys.argv[2], 80))
"""
ALL: Final = ("p1", "p2", "r1", "r2")
CHANGES: Final[dict[str, tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]]] = {
    "more and fewer endpoints": (VIP, (("Cluster", ("p1",)), ("Cluster", ALL))),
    "other endpoints": (VIP, (("Cluster", ("p1", "p2", "r1")), ("Cluster", ("p2", "r1", "r2")))),
    "another external policy": (BALANCER, (("Local", ALL), ("Cluster", ALL))),
    "the proxy starts again": (VIP, ()),
}
"""Where clients send to, and the external policies and endpoints that take turns."""


@contextmanager
def clients(world: World, target: str) -> Iterator[None]:
    """Clients outside, as many as can be, who send one datagram each."""
    for knob in ("udp_timeout", "udp_timeout_stream"):  # a port may come again
        Path(f"/proc/sys/net/netfilter/nf_conntrack_{knob}").write_text("1")
    ends = CLIENTS["outside"][0], target
    command = ["ip", "netns", "exec", world.names["outside"], sys.executable, "-c", SEND, *ends]
    with subprocess.Popen(command) as sending:
        try:
            yield
        finally:
            sending.terminate()


@pytest.mark.parametrize(
    ("kind", "affinity"), [*((kind, "None") for kind in CHANGES), (next(iter(CHANGES)), "ClientIP")]
)
def test_no_packet_falls_between(world: World, loop: asyncio.AbstractEventLoop, kind: str, affinity: str) -> None:
    world.forget()
    target, turns = CHANGES[kind]
    loop.run_until_complete(change(world, target, turns, affinity))
    arrived, missed = counted()
    subprocess.run(["nft", "delete", "table", "ip", "others"], check=True)
    assert missed == 0
    assert arrived > ENOUGH


def counted() -> tuple[int, int]:
    """How many packets to the Service arrived, and how many the node forwards to its address."""
    listed = subprocess.run(["nft", "-j", "list", "table", "ip", "others"], capture_output=True, check=True).stdout
    rules = [row["rule"]["expr"] for row in json.loads(listed)["nftables"] if "rule" in row]
    arrived, missed = (part["counter"]["packets"] for rule in rules for part in rule if "counter" in part)
    return arrived, missed


def is_enough(until_s: float) -> bool:
    """Whether the time is over and packets have come; on a slow machine clients take a while to begin."""
    now_s = time.monotonic()
    return now_s > until_s + DEADLINE_S or (now_s > until_s and counted()[0] > ENOUGH)


async def change(world: World, target: str, turns: tuple[tuple[str, tuple[str, ...]], ...], affinity: str) -> None:
    known = state(made("Cluster", ALL, affinity))
    planner, mode = Planner(known, NODE_VIEW, replace(CONFIG, mode=DATAPLANE.mode)), DATAPLANE.proxier()
    await mode.sync_full(planner.plan)
    await nft.apply(COUNTERS.format(to=target))
    tidy_s = time.monotonic()
    until_s = tidy_s + LONG_S
    with clients(world, target):  # now: a flow from before the first rules stays as it was
        while not is_enough(until_s):
            if not turns:
                await DATAPLANE.proxier().sync_full(planner.plan)
            for policy, ends in turns:
                changes = [done for one in made(policy, ends, affinity) if (done := known.upsert(one))]
                differences = planner.changed(changes)
                await mode.sync_partial(planner.plan, differences)
            if time.monotonic() - tidy_s > TIDY_EVERY_S:
                await mode.sweep()
                tidy_s = time.monotonic()


def made(policy: str, ends: tuple[str, ...], affinity: str) -> tuple[Object, ...]:
    return service(1, endpoints(1, *ends), external=policy, sessionAffinity=affinity)
