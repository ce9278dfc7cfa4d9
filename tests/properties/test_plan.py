"""A plan that followed changes equals one made afresh, and its differences lead from one to the other."""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from typing import TypeAlias

import ipt_walk
import nft_walk
from hypothesis import given
from hypothesis import strategies as st

from kdns.cluster.objects import (
    ClientIPConfig,
    Conditions,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Hints,
    Ingress,
    LoadBalancerStatus,
    Named,
    Object,
    Service,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
    SessionAffinityConfig,
    SliceLabels,
    SliceMeta,
)
from kdns.cluster.state import State
from kdns.net import FAMILIES
from kdns.netlink.ipvs import VirtualServer, VirtualServerKey
from kdns.proxy.ipvs.ipvs import Change, Ipvs
from kdns.proxy.ipvs.mode import IPVS
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.nftables.objects import commands
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.branches import ENDPOINT_SETS
from kdns.proxy.plan.config import LocalPods, NodeView, ProxyConfig
from kdns.proxy.plan.plan import FrontKind
from kdns.proxy.plan.planner import Planner, plan

Write: TypeAlias = Service | EndpointSlice | tuple[type[Object], tuple[str, str]]

NAMES = ("a", "b", "c")
NODE = NodeView("here", "z1", (ip_address("192.0.2.1"),), (ip_address("192.0.2.1"), ip_address("192.0.2.9")))
CONFIG = ProxyConfig(
    NFTABLES, local_pods=LocalPods((ip_network("10.1.0.0/24"),)), service_cidrs=(ip_network("10.96.0.0/24"),)
)

names = st.sampled_from(NAMES)
addresses = st.sampled_from(("10.96.0.1", "10.96.0.2", "192.0.2.1", "192.0.2.9", "2001:db8::1", "2001:DB8::2"))
ports = st.builds(
    ServicePort,
    st.sampled_from((80, 22, 6443, 30080, 32000)),
    st.sampled_from(("", "x")),
    st.sampled_from(("TCP", "UDP")),
    st.sampled_from((0, 30080, 30443)),
)
specs = st.builds(
    ServiceSpec,
    type=st.sampled_from(("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")),
    cluster_ip=st.sampled_from(("10.96.0.1", "10.96.0.2", "10.96.0.3", "2001:db8::1", "None", "")),
    ports=st.lists(ports, max_size=2, unique_by=lambda port: (port.name, port.protocol)).map(tuple),
    external_ips=st.lists(addresses, max_size=2).map(tuple),
    load_balancer_source_ranges=st.sampled_from(((), ("10.0.0.0/8",), ("0.0.0.0/0",), (" 192.0.2.0/24 ",), ("x",))),
    session_affinity=st.sampled_from(("None", "ClientIP")),
    session_affinity_config=st.sampled_from((None, SessionAffinityConfig(ClientIPConfig(60)))),
    external_traffic_policy=st.sampled_from(("Cluster", "Local")),
    internal_traffic_policy=st.sampled_from(("Cluster", "Local")),
    health_check_node_port=st.sampled_from((0, 32000)),
)
statuses = st.lists(st.builds(Ingress, addresses, st.sampled_from((None, "VIP", "Proxy"))), max_size=2).map(
    lambda rows: ServiceStatus(LoadBalancerStatus(tuple(rows)))
)
metas = st.builds(
    ServiceMeta, names, st.just("shop"), creation_timestamp=st.sampled_from(("2026-01-01T00:00:00Z", None))
)
services = st.builds(Service, metas, specs, statuses)
flags = st.sampled_from((None, True, False))
endpoints = st.builds(
    Endpoint,
    st.sampled_from((("10.1.0.1",), ("10.1.0.2",), ("10.2.0.1",), ("2001:db8:1::1",), ())),
    st.builds(Conditions, flags, flags, flags),
    node_name=st.sampled_from((None, "here", "there")),
    hints=st.sampled_from((None, Hints((Named("z1"),)), Hints((Named("z2"),), (Named("here"),)))),
)
slices = st.builds(
    EndpointSlice,
    st.tuples(st.sampled_from(("s1", "s2", "s3")), names).map(
        lambda pair: SliceMeta(pair[0], "shop", SliceLabels(pair[1]))
    ),
    st.sampled_from(("IPv4", "IPv6", "FQDN")),
    st.lists(endpoints, max_size=3).map(tuple),
    st.lists(
        st.builds(EndpointPort, st.sampled_from(("", "x", None)), st.sampled_from((8080, 0, None))), max_size=2
    ).map(tuple),
)
api_servers = st.builds(
    EndpointSlice,
    st.just(SliceMeta("kubernetes", "default", SliceLabels("kubernetes"))),
    endpoints=st.sampled_from(("192.0.2.1", "192.0.2.9", "2001:db8::1")).map(lambda address: (Endpoint((address,)),)),
    ports=st.sampled_from((80, 6443)).map(lambda number: (EndpointPort("https", number),)),
)
deletions = st.one_of(
    st.just((EndpointSlice, ("default", "kubernetes"))),
    names.map(lambda name: (Service, ("shop", name))),
    st.sampled_from(("s1", "s2", "s3")).map(lambda name: (EndpointSlice, ("shop", name))),
)


@given(st.lists(st.lists(st.one_of(services, slices, api_servers, deletions), max_size=3), max_size=8))
def test_following_equals_planning_afresh(rounds: list[list[Write]]) -> None:
    state = State()
    planner = Planner(state, NODE, CONFIG)
    known = {family: dict(planner.plan.of(family).fronts) for family in FAMILIES}
    known_ports = {family: dict(planner.plan.of(family).ports) for family in FAMILIES}
    for writes in rounds:
        changes = []
        for write in writes:
            change = state.delete(*write) if isinstance(write, tuple) else state.upsert(write)
            if change:
                changes.append(change)
        differences = planner.changed(changes)
        assert planner.plan == plan(state, NODE, CONFIG)
        for family in FAMILIES:
            family_plan, difference = planner.plan.of(family), differences[family]
            for key, (old, new) in difference.fronts.items():
                assert known[family].get(key) == old != new
                if new:
                    known[family][key] = new
                else:
                    del known[family][key]
            assert known[family] == family_plan.fronts
            for name, (was, now) in difference.ports.items():
                assert (known_ports[family].get(name), family_plan.ports.get(name)) == (was, now)
            known_ports[family] = dict(family_plan.ports)
            assert set(family_plan.virtual_ips) == {
                key.address for key, front in family_plan.fronts.items() if front.kind is FrontKind.CLUSTER_IP
            }


@given(
    st.lists(
        st.tuples(st.lists(st.one_of(services, slices, api_servers, deletions), max_size=3), st.booleans()), max_size=6
    )
)
def test_a_table_that_followed_equals_one_made_afresh(rounds: list[tuple[list[Write], bool]]) -> None:
    state = State()
    planner = Planner(state, NODE, CONFIG)
    tables = {family: Table(planner.plan.of(family)) for family in FAMILIES}
    kernels = {family: nft_walk.read(tables[family].whole()) for family in FAMILIES}
    for writes, is_quiet in rounds:
        made = [state.delete(*write) if isinstance(write, tuple) else state.upsert(write) for write in writes]
        differences = planner.changed([change for change in made if change])
        for family in FAMILIES:
            family_plan, before = planner.plan.of(family), deepcopy(kernels[family])
            nft_walk.apply(kernels[family], commands(tables[family].follow(family_plan, differences[family])))
            nobody_falls_through(before, kernels[family])
            if is_quiet:
                sweep(kernels[family], tables[family])
                assert nft_walk.in_use(kernels[family]) == nft_walk.in_use(nft_walk.read(Table(family_plan).whole()))
    for family in FAMILIES:
        sweep(kernels[family], tables[family])
        assert nft_walk.in_use(kernels[family]) == nft_walk.in_use(
            nft_walk.read(Table(planner.plan.of(family)).whole())
        )


def sweep(kernel: nft_walk.Ruleset, table: Table) -> None:
    nft_walk.apply(kernel, commands(table.sweep()))
    table.swept()


def nobody_falls_through(before: nft_walk.Ruleset, after: nft_walk.Ruleset) -> None:
    """A packet that met a Service before the change and its endpoints after it goes to one of them nevertheless."""
    mixed = nft_walk.Ruleset(after.family, dict(after.elements), before.chains | after.chains, after.hooks)
    mixed.elements["service-ips"] = before.elements["service-ips"]
    for key, number in before.elements["service-ips"].items():
        if "endpoints-" in before.elements["service-chains"][number]:
            address, protocol, port = key.split(" . ")
            source = "2001:db8:9::1" if ":" in address else "203.0.113.9"
            packet = nft_walk.At(source, address, protocol, int(port))
            assert {at.is_dnat or at.ended == "drop" for at in nft_walk.walk(mixed, packet, ())} == {True}, key


@dataclass
class IpvsKernel:
    """What a kernel has in mode ipvs, of one family."""

    servers: dict[VirtualServerKey, VirtualServer] = field(default_factory=dict)
    addresses: set[str] = field(default_factory=set)
    sets: dict[str, set[str]] = field(default_factory=dict)
    rules: ipt_walk.Kernel = field(default_factory=ipt_walk.Kernel)

    def apply(self, change: Change) -> None:
        """Take a change; AssertionError where it is not one of what is there."""
        for key, (before, after) in change.virtual_servers.items():
            assert self.servers.pop(key, None) == before != after
            if after:
                self.servers[key] = after
        assert self.addresses.issuperset(change.old_addresses)
        assert self.addresses.isdisjoint(change.new_addresses)
        self.addresses = self.addresses.difference(change.old_addresses).union(change.new_addresses)
        for name, entries in change.old_entries.items():
            assert self.sets[name].issuperset(map(str, entries))
            self.sets[name].difference_update(map(str, entries))
        for name, entries in change.new_entries.items():
            assert self.sets[name].isdisjoint(map(str, entries))
            self.sets[name].update(map(str, entries))
        self.rules.restore(change.restore)


def ipvs_kernel(content: Ipvs) -> IpvsKernel:
    sets = {set_.name: set(set_.entries) for set_ in content.sets.values()}
    kernel = IpvsKernel(dict(content.virtual_servers), set(content.addresses), sets)
    kernel.rules.restore(content.base_chains)
    return kernel


@given(st.lists(st.lists(st.one_of(services, slices, api_servers, deletions), max_size=3), max_size=6))
def test_virtual_servers_and_sets_that_followed_equal_new_ones(rounds: list[list[Write]]) -> None:
    state, config = State(), replace(CONFIG, mode=IPVS)
    planner = Planner(state, NODE, config)
    contents = {family: Ipvs(planner.plan.of(family)) for family in FAMILIES}
    kernels = {family: ipvs_kernel(contents[family]) for family in FAMILIES}
    for writes in rounds:
        made = [state.delete(*write) if isinstance(write, tuple) else state.upsert(write) for write in writes]
        differences = planner.changed([change for change in made if change])
        for family in FAMILIES:
            family_plan, kernel = planner.plan.of(family), kernels[family]
            kernel.apply(contents[family].follow(family_plan, differences[family]))
            new = Ipvs(family_plan)
            assert kernel == in_order(kernel, ipvs_kernel(new))
            assert in_order(kernel, ipvs_kernel(contents[family])) == kernel
            assert set(family_plan.virtual_ips) == kernel.addresses
            for front in family_plan.fronts.values():
                assert len({branch.verdict for branch in front.branches} & set(ENDPOINT_SETS)) <= 1


def in_order(kernel: IpvsKernel, other: IpvsKernel) -> IpvsKernel:
    """The other with the rules of the chain that depends on Services in the kernel's order, which does not count."""
    rules, wanted = other.rules.tables["filter"]["KUBE-IPVS-OUT-FILTER"], kernel.rules.tables["filter"]
    if sorted(rules) == sorted(wanted["KUBE-IPVS-OUT-FILTER"]):
        other.rules.tables["filter"]["KUBE-IPVS-OUT-FILTER"] = list(wanted["KUBE-IPVS-OUT-FILTER"])
    return other
