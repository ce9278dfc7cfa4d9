"""The text that nft gets, as a whole: tests/golden/nftables holds it for reading and for comparing.

Run as a program, this file writes the files anew, for a look at the difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.proxy.nftables.table import Table
from kdns.proxy.nftables.transaction import commands
from kdns.proxy.plan.config import LocalPods
from kdns.proxy.plan.planner import Planner, plan

GOLDEN: Final = Path(__file__).parents[3] / "golden" / "nftables"
WEB: Final = service(
    1, endpoints(1, "p1", "r1"), protocols=("TCP", "UDP"), loadBalancerSourceRanges=["203.0.113.0/24", "10.0.0.0/8"]
)


def cluster() -> str:
    """A Service with addresses of every kind, one without endpoints, and one without local ones for its policy."""
    remote = service(3, endpoints(3, "r1"), protocols=("TCP",), external="Local")
    return Table(plan(state(WEB, service(2, protocols=("TCP",)), remote), NODE_VIEW, CONFIG).ipv4).whole()


def local() -> str:
    """Local policies, affinity, a bridge, and node ports everywhere, in IPv6."""
    config = replace(CONFIG, local_pods=LocalPods(bridge="br0"), node_port_addresses=(), service_cidrs=())
    found = service(
        1,
        endpoints(1, "p1", "p2", "r1"),
        protocols=("TCP",),
        internal="Local",
        external="Local",
        sessionAffinity="ClientIP",
    )
    return Table(plan(state(found), NODE_VIEW, config).ipv6).whole()


def change() -> str:
    """An endpoint comes, all go, and what was left over is swept."""
    known = state(WEB)
    planner = Planner(known, NODE_VIEW, CONFIG)
    table = Table(planner.plan.ipv4)
    deque(table.loaded(), 0)
    told = []
    for ends in (("p1", "r1", "r2"), ("r2",), ()):
        changes = [done for each in endpoints(1, *ends) if (done := known.upsert(each))]
        difference = planner.changed(changes)["IPv4"]
        told += [f"# endpoints: {' '.join(ends) or 'none'}", *commands(table.follow(planner.plan.ipv4, difference))]
    return "\n".join([*told, "# sweep", *commands(table.sweep()), ""])


TEXTS: Final[dict[str, Callable[[], str]]] = {"cluster": cluster, "local": local, "change": change}


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str) -> None:
    assert TEXTS[name]() == (GOLDEN / f"{name}.nft").read_text()


if __name__ == "__main__":
    for name, made in TEXTS.items():
        (GOLDEN / f"{name}.nft").write_text(made())
