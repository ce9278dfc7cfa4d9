"""Chains that followed changes equal new ones, and a packet's way through their text is that of the plan."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import ipt_walk
from hypothesis import given
from hypothesis import strategies as st
from test_plan import CONFIG, NODE, Write, api_servers, deletions, services, slices

from kdns.cluster.state import Change, State
from kdns.net import FAMILIES, family_of
from kdns.proxy.iptables.base_chains import JUMPS, Features
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.iptables.tables import Tables, family_text
from kdns.proxy.plan.config import LocalPods, ProxyConfig
from kdns.proxy.plan.plan import FamilyPlan
from kdns.proxy.plan.planner import Planner, plan
from kdns.proxy.trace.trace import Fate, Packet, Trace, trace

PODS = ip_network("10.1.0.0/24"), ip_network("2001:db8:1::/64")
NODE_PORTS = ((), ("primary",), (ip_network("192.0.2.0/29"), ip_network("127.0.0.0/8")), (ip_network("2001:db8::/32"),))
configs = st.builds(
    lambda detects, everything, localhost, addresses: replace(
        CONFIG,
        mode=IPTABLES,
        local_pods=LocalPods(PODS) if detects else None,
        masquerade_all=everything,
        localhost_node_ports=localhost,
        node_port_addresses=addresses,
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(NODE_PORTS),
)
writes = st.lists(st.one_of(services, slices, api_servers, deletions), max_size=3)
features = st.builds(Features, nfacct=st.booleans(), chains_per_section=st.sampled_from((0, 1, 5)))


def write(state: State, some: list[Write]) -> list[Change]:
    made = [state.delete(*each) if isinstance(each, tuple) else state.upsert(each) for each in some]
    return [change for change in made if change]


@given(configs, features, st.lists(writes, max_size=6))
def test_chains_that_followed_equal_new_ones(
    config: ProxyConfig, features: Features, rounds: list[list[Write]]
) -> None:
    state = State()
    planner = Planner(state, NODE, config)
    tables = {family: Tables(planner.plan.of(family), features) for family in FAMILIES}
    kernels = {family: ipt_walk.Kernel() for family in FAMILIES}
    for family in FAMILIES:
        kernels[family] = loaded(with_jumps(tables[family].whole({})))
    for some in rounds:
        before, differences = planner.plan, planner.changed(write(state, some))
        for family in FAMILIES:
            family_plan = planner.plan.of(family)
            text = tables[family].follow(family_plan, differences[family])
            for commit in text.split("COMMIT\n"):
                kernels[family].restore(f"{commit}COMMIT\n" if commit else "")
                nobody_falls_through(kernels[family], before.of(family), family_plan)
            assert content(kernels[family]) == content(loaded(with_jumps(Tables(family_plan, features).whole({}))))
            assert not text or differences[family]
    for family in FAMILIES:  # a restart, with other commits and one that was interrupted behind the first
        new = Tables(planner.plan.of(family), replace(features, chains_per_section=3))
        kernels[family].restore(new.whole(kernels[family].names))
        assert content(kernels[family]) == content(loaded(with_jumps(new.whole({}))))


def nobody_falls_through(kernel: ipt_walk.Kernel, before: FamilyPlan, after: FamilyPlan) -> None:
    """A packet to a Service that was there and stays gets an endpoint or an end, whichever commits were carried out."""
    source = "203.0.113.7" if after.family == "IPv4" else "2001:db8:9::1"
    for key in before.fronts.keys() & after.fronts.keys():
        addresses = [key.address] if key.address else [str(each) for each in NODE.addresses if each in after.node_ports]
        for address in addresses:
            at = ipt_walk.At(source, address, key.protocol.lower(), key.port)
            ends = ipt_walk.walk(kernel, at, map(str, NODE.addresses))
            assert all(end.is_dnat or end.ended in {"drop", "reject"} for end in ends), (key, ends)


def with_jumps(text: str) -> str:
    """The text and the jumps from built-in chains."""
    return text + "".join(f"*{jump.table}\n-I {jump.chain} {jump}\nCOMMIT\n" for jump in JUMPS)


def loaded(text: str) -> ipt_walk.Kernel:
    kernel = ipt_walk.Kernel()
    kernel.restore(text)
    return kernel


def content(kernel: ipt_walk.Kernel) -> dict[tuple[str, str], list[str]]:
    """The rules of chains; those of chains that Services share are sorted."""
    made = {}
    for table, chains in kernel.tables.items():
        for chain, rules in chains.items():
            last = [rule for rule in rules if table == "nat" and rule.endswith("-j KUBE-NODEPORTS")]
            assert rules[len(rules) - len(last) :] == last, "node ports come last"
            is_shared = chain in {"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL", "KUBE-NODEPORTS"}
            made[table, chain] = sorted(rules) if is_shared else rules
    return made


SOURCES = (
    "10.1.0.1",
    "10.1.0.9",
    "192.0.2.1",
    "203.0.113.7",
    "10.9.9.9",
    "2001:db8:1::1",
    "2001:db8:9::1",
    "127.0.0.1",
)
DESTINATIONS = ("127.0.0.1", "192.0.2.1", "192.0.2.9", "::1", "10.96.0.1", "10.96.0.2", "10.96.0.3", "2001:db8::1")
PORTS = (80, 22, 6443, 30080, 30443, 32000)


@given(configs, st.lists(writes, min_size=1, max_size=4))
def test_a_packet_takes_the_branch_of_the_plan(config: ProxyConfig, rounds: list[list[Write]]) -> None:
    state = State()
    for some in rounds:
        write(state, some)
    made = plan(state, NODE, config)
    kernels = {family: loaded(family_text(made.of(family))) for family in FAMILIES}
    local = [str(address) for address in NODE.addresses]
    for source in map(ip_address, SOURCES):
        for destination in map(ip_address, DESTINATIONS):
            is_sent = source.version == destination.version and (source.is_loopback or not destination.is_loopback)
            for port in PORTS if is_sent else ():
                told = trace(made, Packet(source, destination, "TCP", port))
                at = ipt_walk.At(str(source), str(destination), "tcp", port)
                ends = ipt_walk.walk(kernels[family_of(destination)], at, local)
                assert agrees(told, ends), (at, told, ends)


def agrees(told: Trace, ends: list[ipt_walk.At]) -> bool:
    if told.fate is Fate.FORWARDED:
        wanted = {(endpoint.address, endpoint.port, told.sees_node(endpoint)) for endpoint in told.endpoints}
        return {(at.daddr, at.dport, at.is_masqueraded) for at in ends if at.is_dnat} == wanted
    words = {Fate.REJECTED: "reject", Fate.DROPPED: "drop", Fate.ACCEPTED: "accept", Fate.UNTOUCHED: ""}
    return {(at.ended, at.is_dnat) for at in ends} == {(words[told.fate], False)}
