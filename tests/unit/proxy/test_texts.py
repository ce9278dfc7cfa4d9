"""What modes write, as whole texts: tests/golden holds them for reading and for comparing.

Run as a program, this file writes them anew, for a look at the difference.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from small_cluster import Followed, endpoints, planned, service

from kdns.cluster.objects import Object, Service
from kdns.proxy.iptables.base_chains import Features
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.iptables.tables import Tables, family_text
from kdns.proxy.ipvs.ipvs import Change, Ipvs, IpvsOptions
from kdns.proxy.ipvs.mode import IPVS
from kdns.proxy.ipvs.text import ipvs_text
from kdns.proxy.kernelspace.mode import KERNELSPACE
from kdns.proxy.kernelspace.settings import WindowsNetwork
from kdns.proxy.kernelspace.text import requests_text
from kdns.proxy.nftables.objects import commands
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.config import LocalPods
from kdns.proxy.plan.plan import FamilyPlan
from kdns.proxy.plan.planner import Difference

GOLDEN: Final = Path(__file__).parents[2] / "golden"
CHAINS: Final[dict[str, Any]] = {"mode": IPTABLES, "node_port_addresses": ()}
BRIDGE: Final[dict[str, Any]] = {"local_pods": LocalPods(bridge="br0"), "node_port_addresses": ()}
COUNTED: Final = Features(nfacct=True)


def web(*protocols: str) -> tuple[Object, ...]:
    """A Service with addresses of every kind, and source ranges."""
    ranges = ["203.0.113.0/24", "10.0.0.0/8"]
    return service(1, endpoints(1, "p1", "r1"), protocols=protocols, loadBalancerSourceRanges=ranges)


def local(number: int, *ends: str, protocols: tuple[str, ...] = ("TCP",)) -> tuple[Object, ...]:
    """A Service with local policies, affinity and health checks."""
    return service(
        number,
        endpoints(number, *ends),
        protocols=protocols,
        internal="Local",
        external="Local",
        sessionAffinity="ClientIP",
        healthCheckNodePort=32000 + number,
    )


def changes(followed: Followed, follow: Callable[[FamilyPlan, Difference], Iterable[str]]) -> str:
    """An endpoint comes, all go, one comes, and the Service goes."""
    lines = []
    for ends in (("p1", "r1", "r2"), (), ("r2",), None):
        differences = followed.delete(Service, "s1") if ends is None else followed.change(endpoints(1, *ends))
        lines.append("# no Service" if ends is None else f"# endpoints: {' '.join(ends) or 'none'}")
        lines += follow(followed.plan.ipv4, differences["IPv4"])
    return "\n".join([*lines, ""])


def nftables_changes() -> str:
    followed = Followed(web("TCP", "UDP"))
    table = Table(followed.plan.ipv4)
    deque(table.loaded(), 0)
    lines = changes(followed, lambda *change: commands(table.follow(*change)))
    return "\n".join([lines, "# sweep", *commands(table.sweep()), ""])


def iptables_changes() -> str:
    followed = Followed(web("TCP"), **CHAINS)
    tables = Tables(followed.plan.ipv4, COUNTED)
    return changes(followed, lambda *change: [tables.follow(*change)])


def ipvs_changes() -> str:
    followed = Followed(web("TCP", "UDP"), mode=IPVS)
    content = Ipvs(followed.plan.ipv4)
    return changes(followed, lambda *change: ipvs_lines(content.follow(*change)))


def ipvs_lines(change: Change) -> Iterator[str]:
    for key, (before, after) in change.virtual_servers.items():
        ends = [
            " ".join(f"{address}:{port}" for address, port in each.destinations) if each else "-"
            for each in (before, after)
        ]
        yield f"{key.address}:{key.port}/{key.protocol}: {' -> '.join(ends)}"
    for sign, entries in (("+", change.new_entries), ("-", change.old_entries)):
        yield from (f"{sign} {name} {each}" for name, some in entries.items() for each in some)
    for sign, addresses in (("+", change.new_addresses), ("-", change.old_addresses)):
        yield from (f"{sign} {address}" for address in addresses)
    yield from change.restore.splitlines()


def ipvs_family(number: int, text: str) -> str:
    first, separator, second = text.partition("# IPv6: ipset")
    return (first, separator + second)[number]


TEXTS: Final[dict[str, Callable[[], str]]] = {
    "nftables/cluster.nft": lambda: Table(
        planned(
            web("TCP", "UDP"),
            service(2, protocols=("TCP",)),
            service(3, endpoints(3, "r1"), protocols=("TCP",), external="Local"),
        ).ipv4
    ).whole(),
    "nftables/local.nft": lambda: Table(planned(local(1, "p1", "p2", "r1"), service_cidrs=(), **BRIDGE).ipv6).whole(),
    "nftables/change.nft": nftables_changes,
    "iptables/cluster.rules": lambda: family_text(
        planned(web("TCP"), service(2, protocols=("UDP",)), **CHAINS).ipv4, COUNTED
    ),
    "iptables/local.rules": lambda: Tables(
        planned(local(1, "p1", "p2", "r1"), mode=IPTABLES, **BRIDGE).ipv6, Features(nfacct=True, tcp_be_liberal=True)
    ).whole({"filter": ["KUBE-FIREWALL"]}),
    "iptables/change.rules": iptables_changes,
    "ipvs/cluster.txt": lambda: ipvs_family(
        0, ipvs_text(planned(web("TCP", "UDP"), service(2, protocols=("TCP",)), mode=IPVS))
    ),
    "ipvs/local.txt": lambda: ipvs_family(
        1,
        ipvs_text(
            planned(
                local(1, "p1", "p2", "r1", protocols=("TCP", "SCTP")),
                local(2, "r1", "r2", protocols=("TCP", "SCTP")),
                mode=IPVS,
                **BRIDGE,
            ),
            IpvsOptions(scheduler="mh"),
        ),
    ),
    "ipvs/undetected.txt": lambda: Ipvs(planned(mode=IPVS, local_pods=None).ipv4).base_chains,
    "ipvs/change.txt": ipvs_changes,
    "kernelspace/render.txt": lambda: requests_text(
        planned(
            service(1, endpoints(1, "p1", "r1"), protocols=("TCP",), healthCheckNodePort=32000, external="Local"),
            mode=KERNELSPACE,
            node_port_addresses=(),
        ),
        WindowsNetwork("Pods", "10.1.0.9", "cbr0", 10256),
    ).partition("# IPv6")[0],
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str) -> None:
    assert TEXTS[name]() == (GOLDEN / name).read_text()


if __name__ == "__main__":
    for name, text in TEXTS.items():
        (GOLDEN / name).write_text(text())
