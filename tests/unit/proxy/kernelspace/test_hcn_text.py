"""The text of mode kernelspace: every id but those that only the node knows is the one that a node has."""

import json
from dataclasses import replace

from hcn_node import HcnNode
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.proxy.kernelspace.mode import KERNELSPACE, WindowsNetwork
from kdns.proxy.kernelspace.text import requests_text
from kdns.proxy.plan.planner import plan

WEB = service(1, endpoints(1, "p1", "r1"), protocols=("TCP",), healthCheckNodePort=32000, external="Local")


def shown(network: WindowsNetwork) -> list[str]:
    """The lines of IPv4."""
    config = replace(CONFIG, mode=KERNELSPACE, node_port_addresses=())
    return requests_text(plan(state(WEB), NODE_VIEW, config), network).partition("# IPv6")[0].splitlines()


async def test_ids_are_those_of_a_node() -> None:
    node = HcnNode(WEB)
    await node.sync()
    requests = [line.split(" ", 2) for line in shown(WindowsNetwork("Pods")) if not line.startswith("#")]
    existing = node.service.endpoints | node.service.load_balancers
    assert len(requests) == 5
    for function, name, document in requests:
        found = existing[name]
        printed = json.loads(document)
        assert printed["SchemaVersion"] == found["SchemaVersion"]
        if function == "HcnCreateLoadBalancer":
            assert printed["PortMappings"] == found["PortMappings"]


def test_what_only_the_node_knows_is_in_parentheses() -> None:
    lines = "\n".join(shown(WindowsNetwork("Pods", "10.1.0.9", "cbr0", 10256)))
    for what in (
        '"(endpoint of 10.1.0.2)"',
        '"(endpoint cbr0)"',
        '"ProviderAddress": "(provider address of 10.1.1.2)"',
        '"MacAddress": "(MAC address of the node)"',
        '"SourceVIP": "10.1.0.9"',
    ):
        assert what in lines


def test_each_load_balancer_has_its_service_before_it() -> None:
    assert [line for line in shown(WindowsNetwork("Pods", "", "cbr0", 10256)) if line.startswith("# ")] == [
        "# IPv4: endpoints",
        "# IPv4: load balancers",
        "# 10.96.0.1:80/TCP, cluster IP of shop/s1:tcp",
        "# 198.51.100.1:80/TCP, external IP of shop/s1:tcp",
        "# 198.51.101.1:80/TCP, load balancer IP of shop/s1:tcp",
        "# 198.51.101.1:32000/TCP, health checks of load balancers",
        "# *:30001/TCP, node port of shop/s1:tcp",
    ]
