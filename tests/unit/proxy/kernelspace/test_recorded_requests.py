"""The requests for one Service of each kind, as wholes: tests/golden/kernelspace holds them.

`python tests/unit/proxy/kernelspace/test_recorded_requests.py` writes the files anew.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest
from fake_hcn import FakeHcn
from hcn_node import HcnNode
from small_cluster import endpoints, service

from kdns.cluster.objects import Object
from kdns.proxy.kernelspace.settings import WindowsNetwork

GOLDEN: Final = Path(__file__).parents[3] / "golden" / "kernelspace"
_ONE: Final = [{"name": "tcp", "protocol": "TCP", "port": 80}]
_NODE_PORT: Final = [{"name": "tcp", "protocol": "TCP", "port": 80, "nodePort": 30001}]
_IPV4: Final = {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "externalIPs": [], "ports": _ONE}
OVERLAY: Final = FakeHcn(network_type="Overlay", subnets={"10.1.1.0/24": "192.0.2.2"})


def objects(*ends: str, **spec: Any) -> tuple[Object, ...]:
    """A Service of IPv4 with a cluster IP only, and what differs."""
    given: dict[str, Any] = {"type": "ClusterIP", "ingress": [], **_IPV4, **spec}
    return service(1, endpoints(1, *ends), **given)


NODES: Final[dict[str, tuple[tuple[Object, ...], dict[str, Any]]]] = {
    # name → objects, and how the node is
    "cluster_ip": (objects("p1", "r1"), {"enables_dsr": False}),
    "cluster_ip_internal_local": (objects("p1", "r1", internal="Local"), {"enables_dsr": False}),
    "cluster_ip_dsr": (objects("p1", "r1"), {}),
    "node_port": (objects("p1", "r1", type="NodePort", ports=_NODE_PORT), {"enables_dsr": False}),
    "load_balancer_local": (
        objects(
            "p1",
            "r1",
            type="LoadBalancer",
            ports=_NODE_PORT,
            ingress=[{"ip": "198.51.101.1"}],
            external="Local",
            healthCheckNodePort=32000,
        ),
        {"enables_dsr": False, "network": WindowsNetwork("Pods", "", "cbr0", 10256)},
    ),
    "external_ip": (objects("p1", "r1", externalIPs=["198.51.100.1"]), {"enables_dsr": False}),
    "affinity": (objects("p1", "r1", sessionAffinity="ClientIP"), {"enables_dsr": False}),
    "dual_stack": (
        objects("p1", "r1", type="NodePort", clusterIPs=["10.96.0.1", "fd00:96::1"], ports=_NODE_PORT),
        {},
    ),
    "overlay": (
        objects("p1", "r1"),
        {"enables_dsr": False, "network": WindowsNetwork("Pods", "10.1.0.9"), "service": OVERLAY},
    ),
}


async def recorded(name: str) -> str:
    of, given = NODES[name]
    node = HcnNode(of, **given)
    if node.network.healthz_port:
        node.service.add_pod("10.1.0.254", name="cbr0")
    return "\n".join((*await node.sync(), ""))


@pytest.mark.parametrize("name", NODES)
async def test_recorded(name: str) -> None:
    OVERLAY.endpoints.clear()
    OVERLAY.load_balancers.clear()
    assert await recorded(name) == (GOLDEN / f"{name}.txt").read_text()


if __name__ == "__main__":
    for each in NODES:
        (GOLDEN / f"{each}.txt").write_text(asyncio.run(recorded(each)))
