"""Mode kernelspace as text to read: the requests that create everything on a node that has nothing yet.

What only the node knows is in parentheses: ids of endpoints that the CNI plugin has created, the node's MAC address,
and on overlay networks the addresses of other nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from kdns.net import FAMILIES, join_host_port
from kdns.proxy.kernelspace.content import Content, NodeNetwork
from kdns.proxy.kernelspace.requests import requests
from kdns.proxy.kernelspace.schema import HostComputeNetwork, LoadBalancerKey
from kdns.proxy.kernelspace.settings import WindowsNetwork
from kdns.proxy.plan.plan import FamilyPlan, Plan, printable


def requests_text(plan: Plan, network: WindowsNetwork) -> str:
    """The requests of both families, each after a comment with its Service."""
    return "\n".join((*(line for family in FAMILIES for line in _lines(plan.of(family), network)), ""))


def described_network(family_plan: FamilyPlan, settings: WindowsNetwork) -> NodeNetwork:
    """The node's network as far as settings and plan describe it; with a source VIP it is an overlay."""
    local = {
        endpoint.address: f"(endpoint of {endpoint.address})"
        for port in family_plan.ports.values()
        for endpoint in port.endpoints.reachable
        if endpoint.is_local
    }
    gateway = f"(endpoint {settings.gateway_endpoint})" if settings.gateway_endpoint else ""
    network = HostComputeNetwork("", settings.name, "Overlay" if settings.source_vip else "L2Bridge")
    return NodeNetwork(network, "(MAC address of the node)", local, gateway, settings)


def _lines(family_plan: FamilyPlan, network: WindowsNetwork) -> Iterator[str]:
    content = Content(family_plan, described_network(family_plan, network))
    yield f"# {family_plan.family}: endpoints"
    yield from map(str, requests(((None, endpoint) for endpoint in content.endpoints.values()), ()))
    yield f"# {family_plan.family}: load balancers"
    for key, balancer in content.load_balancers.items():
        yield f"# {_described(content, key)}"
        (request,) = requests((), [(None, balancer)])
        yield str(request)


def _described(content: Content, key: LoadBalancerKey) -> str:
    at = join_host_port(key.vip or "*", key.port)
    front = content.front_at(key)
    if front is None:
        return f"{at}/TCP, health checks of load balancers"
    return f"{at}/{front.key.protocol}, {front.kind.value} of {printable(str(front.port.name))}"
