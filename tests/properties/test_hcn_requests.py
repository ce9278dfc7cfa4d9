"""Load balancers that followed changes equal new ones, and no request leaves a front without its endpoints."""

from dataclasses import replace

from fake_hcn import FakeHcn, FakeLibraries
from hypothesis import given
from hypothesis import strategies as st
from test_plan import CONFIG, NODE, Write

from kdns.cluster.objects import (
    Conditions,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Ingress,
    LoadBalancerStatus,
    Service,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
    SliceLabels,
    SliceMeta,
)
from kdns.cluster.state import State
from kdns.net import FAMILIES
from kdns.proxy.kernelspace.content import Content, NodeNetwork
from kdns.proxy.kernelspace.io.compute_network import ComputeNetwork
from kdns.proxy.kernelspace.mode import KERNELSPACE
from kdns.proxy.kernelspace.requests import Request, Verb, reconciling_requests
from kdns.proxy.kernelspace.schema import HostComputeLoadBalancer, HostComputeNetwork
from kdns.proxy.kernelspace.settings import WindowsNetwork
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import Planner

LOCAL = ("10.1.0.1", "10.1.0.2")
ADDRESSES = {"IPv4": (*LOCAL, "10.2.0.1", "10.2.0.2", "203.0.113.5"), "IPv6": ("2001:db8:1::1", "2001:db8:1::2")}
PORTS = (ServicePort(80, "x", "TCP", 30080), ServicePort(81, "y", "UDP"), ServicePort(10256, "x", "TCP"))

networks = st.sampled_from(("L2Bridge", "Overlay"))
names = st.sampled_from(("a", "a", "b"))
policies = st.sampled_from(("Cluster", "Local"))
ingress = st.lists(st.sampled_from(("198.51.100.1", "198.51.100.2", "2001:db8:6::1")), max_size=2, unique=True)
specs = st.builds(
    ServiceSpec,
    type=st.just("LoadBalancer"),
    cluster_ip=st.sampled_from(("10.96.0.1", "10.96.0.2", "2001:db8::1")),
    ports=st.lists(st.sampled_from(PORTS), min_size=1, max_size=2, unique_by=lambda port: port.name).map(tuple),
    external_ips=ingress.map(tuple),
    session_affinity=st.sampled_from(("None", "ClientIP")),
    external_traffic_policy=policies,
    internal_traffic_policy=policies,
    health_check_node_port=st.sampled_from((0, 32000)),
)
statuses = ingress.map(lambda rows: ServiceStatus(LoadBalancerStatus(tuple(Ingress(row) for row in rows))))
services = st.builds(Service, st.builds(ServiceMeta, names, st.just("shop")), specs, statuses)


@st.composite
def slices(draw: st.DrawFn) -> EndpointSlice:
    """A slice with endpoints here and elsewhere, ready or not."""
    family, name = draw(st.sampled_from(("IPv4", "IPv4", "IPv6"))), draw(names)
    conditions = st.sampled_from((None, Conditions(ready=False), Conditions(False, True, True)))
    nodes = st.sampled_from(("here", "there"))
    rows = draw(st.lists(st.tuples(st.sampled_from(ADDRESSES[family]), conditions, nodes), min_size=1, max_size=4))
    ends = tuple(Endpoint((address,), state, node_name=node) for address, state, node in rows)
    number = draw(st.sampled_from((8080, 9090)))
    ports = (EndpointPort("x", number), EndpointPort("y", 53, "UDP"))
    which = draw(st.sampled_from(("1", "2")))
    return EndpointSlice(SliceMeta(f"{name}{family}{which}", "shop", SliceLabels(name)), family, ends, ports)


deletions = names.map(lambda name: (Service, ("shop", name)))


class Node:
    """A simulated service, and the contents that a process has."""

    def __init__(self, plan: Plan, network_type: str) -> None:
        self.service = FakeHcn(network_type=network_type, subnets={"10.2.0.0/24": "192.0.2.7"})
        existing = {address: self.service.add_pod(address) for address in LOCAL}
        gateway = self.service.add_pod("10.1.0.254", "2001:db8:7::1", name="cbr0")
        self.hcn = ComputeNetwork(FakeLibraries(self.service).functions)
        network = HostComputeNetwork.read(self.service.networks[self.service.network_id])
        self.network = NodeNetwork(
            network, "00-15-5d-00-00-01", existing, gateway, WindowsNetwork("Pods", "10.1.0.9", "cbr0", 10256)
        )
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
        return {load_balancer.id: load_balancer.endpoints for load_balancer in self.hcn.load_balancers()}

    def objects(self) -> tuple[object, ...]:
        endpoints = {endpoint.id: endpoint for endpoint in self.hcn.endpoints(self.service.network_id)}
        return endpoints, {load_balancer.id: load_balancer for load_balancer in self.hcn.load_balancers()}

    def reconcile(self, plan: Plan) -> list[Request]:
        contents = [Content(plan.of(family), self.network) for family in FAMILIES]
        foreign = {*self.network.endpoints.values(), self.network.gateway}
        return list(
            reconciling_requests(
                {address: each for content in contents for address, each in content.endpoints.items()},
                {key: each for content in contents for key, each in content.load_balancers.items()},
                [endpoint for endpoint in self.hcn.endpoints(self.service.network_id) if endpoint.id not in foreign],
                self.hcn.load_balancers(),
            )
        )


@given(
    st.lists(
        st.lists(st.one_of(services, slices(), slices(), deletions), min_size=2, max_size=5), min_size=1, max_size=5
    ),
    networks,
    st.booleans(),
)
def test_load_balancers_that_followed_equal_new_ones(
    rounds: list[list[Write]], network_type: str, enables_dsr: bool
) -> None:
    state = State()
    config = replace(CONFIG, mode=KERNELSPACE, masquerade_all=not enables_dsr, node_port_addresses=())
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
        missing = [content.missing for content in node.contents.values()]
        assert missing == [content.missing for content in new.contents.values()]
