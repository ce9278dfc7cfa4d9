"""Which entries a Service has in the sets."""

from dataclasses import replace
from typing import Any, Final

import pytest
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.net import Family
from kdns.proxy.ipvs.ipvs import Ipvs
from kdns.proxy.ipvs.mode import IPVS
from kdns.proxy.ipvs.sets import LOOP_BACK, SOURCE_CIDR, SOURCE_IP, set_name
from kdns.proxy.plan.planner import plan

RANGES: Final = ["198.51.101.1/32", "2001:db8:6::1/128", "203.0.113.0/24", "2001:db8:7::/64"]
GUARDED: Final[dict[str, Any]] = {"loadBalancerSourceRanges": RANGES}
PORTS: Final = [{"name": "tcp", "protocol": "TCP", "port": 80}]
INSIDE: Final[dict[str, Any]] = {"externalIPs": [], "ingress": [], "ports": PORTS, "type": "ClusterIP"}


@pytest.mark.parametrize(
    ("spec", "name", "family", "wanted"),
    [
        (GUARDED, SOURCE_IP, "IPv4", ["198.51.101.1,tcp:80,198.51.101.1"]),
        (GUARDED, SOURCE_CIDR, "IPv4", ["198.51.101.1,tcp:80,203.0.113.0/24"]),
        (GUARDED, SOURCE_IP, "IPv6", ["2001:db8:6::1,tcp:80,2001:db8:6::1"]),
        (GUARDED, SOURCE_CIDR, "IPv6", ["2001:db8:6::1,tcp:80,2001:db8:7::/64"]),
        ({}, LOOP_BACK, "IPv4", ["10.1.0.2,tcp:8080,10.1.0.2"]),
        ({**INSIDE, "internal": "Local"}, LOOP_BACK, "IPv4", ["10.1.0.2,tcp:8080,10.1.0.2"]),
        ({**INSIDE, "internal": "Local"}, LOOP_BACK, "IPv6", ["fd00:1::2,tcp:8080,fd00:1::2"]),
    ],
)
def test_entries(spec: dict[str, Any], name: str, family: Family, wanted: list[str]) -> None:
    web = service(1, endpoints(1, "p1", "r1"), protocols=("TCP",), **spec)
    made = Ipvs(plan(state(web), NODE_VIEW, replace(CONFIG, mode=IPVS)).of(family))
    assert [str(entry) for entry in made.sets[set_name(name, family)].entries] == wanted
