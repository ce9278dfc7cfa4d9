"""The text of mode ipvs, as a whole: tests/golden/ipvs holds it for reading and for comparing.

`python tests/unit/proxy/ipvs/test_ipvs_text.py` writes the files anew, for a look at the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import ipvs_walk
import pytest
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.proxy.ipvs.ipvs import Change, Ipvs, IpvsOptions
from kdns.proxy.ipvs.mode import IPVS
from kdns.proxy.ipvs.text import ipvs_text
from kdns.proxy.plan.config import LocalPods
from kdns.proxy.plan.planner import Planner, plan

GOLDEN: Final = Path(__file__).parents[3] / "golden" / "ipvs"
WEB: Final = service(
    1, endpoints(1, "p1", "r1"), protocols=("TCP", "UDP"), loadBalancerSourceRanges=["203.0.113.0/24", "10.0.0.0/8"]
)
RULES: Final = replace(CONFIG, mode=IPVS)


def cluster() -> str:
    """A Service with addresses of every kind, and one without endpoints."""
    made = plan(state(WEB, service(2, protocols=("TCP",))), NODE_VIEW, RULES)
    return ipvs_walk.parts(ipvs_text(made))["IPv4"]


def local() -> str:
    """Local policies with local endpoints and without, affinity, mh, a bridge, and node ports everywhere, in IPv6."""
    config = replace(RULES, local_pods=LocalPods(bridge="br0"), node_port_addresses=())
    services = [
        service(
            number,
            endpoints(number, *ends),
            protocols=("TCP", "SCTP"),
            internal="Local",
            external="Local",
            sessionAffinity="ClientIP",
            healthCheckNodePort=32000 + number,
        )
        for number, ends in ((1, ("p1", "p2", "r1")), (2, ("r1", "r2")))
    ]
    made = plan(state(*services), NODE_VIEW, config)
    return ipvs_walk.parts(ipvs_text(made, IpvsOptions(scheduler="mh")))["IPv6"]


def change() -> str:
    """An endpoint comes, all go, and then the Service does."""
    known = state(WEB)
    planner = Planner(known, NODE_VIEW, RULES)
    content = Ipvs(planner.plan.ipv4)
    told = []
    for ends in (("p1", "r1", "r2"), ("r2",), (), None):
        objects = endpoints(1, *ends) if ends is not None else ()
        writes = [known.upsert(each) for each in objects]
        if ends is None:
            writes = [known.delete(type(WEB[0]), WEB[0].key)]
        difference = planner.changed([each for each in writes if each])["IPv4"]
        told += [f"# {'endpoints: ' + (' '.join(ends) or 'none') if ends is not None else 'no Service'}"]
        told += changed(content.follow(planner.plan.ipv4, difference))
    return "\n".join([*told, ""])


def changed(change: Change) -> Iterator[str]:
    """A change as lines to read."""
    for key, (before, after) in change.virtual_servers.items():
        ends = [
            " ".join(f"{address}:{port}" for address, port in each.destinations) if each else "-"
            for each in (before, after)
        ]
        yield f"{key.address}:{key.port}/{key.protocol}: {' -> '.join(ends)}"
    for sign, entries in (("+", change.new_entries), ("-", change.old_entries)):
        yield from (f"{sign} {name} {each}" for name, some in entries.items() for each in some)
    yield from (
        f"{sign} {each}" for sign, some in (("+", change.new_addresses), ("-", change.old_addresses)) for each in some
    )
    yield from change.restore.splitlines()


TEXTS: Final[dict[str, Callable[[], str]]] = {"cluster": cluster, "local": local, "change": change}


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str) -> None:
    assert TEXTS[name]() == (GOLDEN / f"{name}.txt").read_text()


if __name__ == "__main__":
    for name, made in TEXTS.items():
        (GOLDEN / f"{name}.txt").write_text(made())
