"""Load balancers that followed changes equal new ones, and no request leaves a front without its endpoints."""

from __future__ import annotations

from dataclasses import replace

from fake_hcn import FakeHcn, FakeLibraries
from hypothesis import given
from hypothesis import strategies as st
from test_plan import CONFIG, NODE, Write, api_servers, deletions, services, slices

from kdns.cluster.state import State
from kdns.net import FAMILIES
from kdns.proxy.kernelspace.content import Content, NodeNetwork
from kdns.proxy.kernelspace.io.compute_network import ComputeNetwork
from kdns.proxy.kernelspace.mode import KERNELSPACE
from kdns.proxy.kernelspace.requests import Request, Verb, reconciling_requests
from kdns.proxy.kernelspace.schema import HostComputeLoadBalancer, HostComputeNetwork
from kdns.proxy.plan.config import HostNetwork
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import Planner

LOCAL = ("10.1.0.1", "10.1.0.2")
networks = st.sampled_from(("L2Bridge", "Overlay"))


class Node:
    """A simulated service, and the contents that a process has."""

    def __init__(self, plan: Plan, network_type: str) -> None:
        self.service = FakeHcn(network_type=network_type, subnets={"10.2.0.0/24": "192.0.2.7"})
        existing = {address: self.service.add_pod(address) for address in LOCAL}
        gateway = self.service.add_pod("10.1.0.254", "2001:db8:7::1", name="cbr0")
        self.hcn = ComputeNetwork(FakeLibraries(self.service).functions)
        network = HostComputeNetwork.read(self.service.networks[self.service.network_id])
        self.network = NodeNetwork(network, "00-15-5d-00-00-01", existing, gateway)
        self.contents = {family: Content(plan.of(family), self.network) for family in FAMILIES}

    def carry_out(self, request: Request) -> None:
        """A request, which the service has to accept. Load balancers that exist before and after it keep endpoints."""
        before = self.ends()
        self.hcn.carry_out(request)
        after = self.ends()
        if isinstance(request.object, HostComputeLoadBalancer):
            changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
            assert changed <= {request.object.id}
        else:
            assert before == after
        assert all(after.values())
        if request.verb is Verb.MODIFY:
            assert before.keys() == after.keys()

    def ends(self) -> dict[str, tuple[str, ...]]:
        """The endpoints of each load balancer."""
        return {each.id: each.endpoints for each in self.hcn.load_balancers()}

    def objects(self) -> tuple[object, ...]:
        """What the service has."""
        endpoints = {each.id: each for each in self.hcn.endpoints(self.service.network_id)}
        return endpoints, {each.id: each for each in self.hcn.load_balancers()}

    def reconcile(self, plan: Plan) -> list[Request]:
        """The requests of a full sync of a new process."""
        contents = [Content(plan.of(family), self.network) for family in FAMILIES]
        foreign = {*self.network.endpoints.values(), self.network.gateway}
        return list(
            reconciling_requests(
                {address: each for content in contents for address, each in content.endpoints.items()},
                {key: each for content in contents for key, each in content.load_balancers.items()},
                [each for each in self.hcn.endpoints(self.service.network_id) if each.id not in foreign],
                self.hcn.load_balancers(),
            )
        )


@given(
    st.lists(st.lists(st.one_of(services, slices, api_servers, deletions), max_size=3), max_size=6),
    networks,
    st.booleans(),
)
def test_load_balancers_that_followed_equal_new_ones(
    rounds: list[list[Write]], network_type: str, enables_dsr: bool
) -> None:
    state = State()
    config = replace(
        CONFIG,
        mode=KERNELSPACE,
        masquerade_all=not enables_dsr,
        node_port_addresses=(),
        host_network=HostNetwork("Pods", "10.1.0.9", "cbr0", 10256),
    )
    planner = Planner(state, NODE, config)
    node = Node(planner.plan, network_type)
    for writes in rounds:
        made = [state.delete(*write) if isinstance(write, tuple) else state.upsert(write) for write in writes]
        differences = planner.changed([change for change in made if change])
        changes = [
            request
            for family in FAMILIES
            for request in node.contents[family].follow(planner.plan.of(family), differences[family])
        ]
        for request in changes:
            node.carry_out(request)
        assert node.reconcile(planner.plan) == []
        new = Node(planner.plan, network_type)
        for request in new.reconcile(planner.plan):
            new.carry_out(request)
        assert new.objects() == node.objects()
        missing = [each.missing for each in node.contents.values()]
        assert missing == [each.missing for each in new.contents.values()]
