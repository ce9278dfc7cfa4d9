"""The text that iptables-restore gets, as a whole: tests/golden/iptables holds it for reading and for comparing.

`python tests/unit/proxy/iptables/test_iptables_text.py` writes the files anew, for a look at the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.proxy.iptables.base_chains import Features
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.iptables.tables import Tables
from kdns.proxy.iptables.text import family_text
from kdns.proxy.plan.config import LocalPods
from kdns.proxy.plan.planner import Planner, plan

GOLDEN: Final = Path(__file__).parents[3] / "golden" / "iptables"
HERE: Final = replace(CONFIG, mode=IPTABLES, node_port_addresses=())
WEB: Final = service(
    1, endpoints(1, "p1", "r1"), protocols=("TCP",), loadBalancerSourceRanges=["203.0.113.0/24", "10.0.0.0/8"]
)


def cluster() -> str:
    """A Service with addresses of every kind, and one without endpoints, where the kernel counts by nfacct."""
    return family_text(plan(state(WEB, service(2, protocols=("UDP",))), NODE_VIEW, HERE).ipv4, Features(nfacct=True))


def local() -> str:
    """Local policies, affinity, a bridge, and what kernels may have, in IPv6."""
    found = service(
        1,
        endpoints(1, "p1", "p2", "r1"),
        protocols=("TCP",),
        internal="Local",
        external="Local",
        sessionAffinity="ClientIP",
        healthCheckNodePort=32000,
    )
    config = replace(HERE, local_pods=LocalPods(bridge="br0"))
    features = Features(nfacct=True, tcp_be_liberal=True)
    return Tables(plan(state(found), NODE_VIEW, config).ipv6, features).whole({"filter": ["KUBE-FIREWALL"]})


def change() -> str:
    """An endpoint comes, all go, and the Service goes."""
    known = state(WEB)
    planner = Planner(known, NODE_VIEW, HERE)
    tables = Tables(planner.plan.ipv4, Features(nfacct=True))
    texts = []
    for ends in (("p1", "r1", "r2"), (), ("r2",)):
        changes = [done for each in endpoints(1, *ends) if (done := known.upsert(each))]
        difference = planner.changed(changes)["IPv4"]
        texts += [f"# endpoints: {' '.join(ends) or 'none'}", tables.follow(planner.plan.ipv4, difference)]
    gone = known.delete(type(WEB[0]), ("shop", "s1"))
    assert gone
    difference = planner.changed([gone])["IPv4"]
    texts += ["# no Service", tables.follow(planner.plan.ipv4, difference)]
    return "\n".join(texts)


TEXTS: Final[dict[str, Callable[[], str]]] = {"cluster": cluster, "local": local, "change": change}


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str) -> None:
    assert TEXTS[name]() == (GOLDEN / f"{name}.rules").read_text()


if __name__ == "__main__":
    for name, made in TEXTS.items():
        (GOLDEN / f"{name}.rules").write_text(made())
