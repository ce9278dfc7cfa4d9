"""Which UDP flows are deleted when endpoints change, by rows."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from kdns.cluster.objects import (
    Conditions,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Service,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    SliceLabels,
    SliceMeta,
)
from kdns.cluster.state import Change, State
from kdns.netlink.conntrack import Flow
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.plan import FrontKey
from kdns.proxy.plan.planner import Planner
from kdns.proxy.plan.stale_flows import Fronts, is_stale, udp_fronts
from kdns.proxy.userspace.mode import USERSPACE

NODE = NodeView("here", "", (ip_address("192.0.2.1"),), (ip_address("192.0.2.1"), ip_address("192.0.2.9")))
CONFIG = ProxyConfig(NFTABLES, node_port_addresses=("primary",))

VIP, NODE_IP, OTHER_IP, ELSEWHERE = "10.96.0.10", "192.0.2.1", "192.0.2.9", "203.0.113.1"
A, B, LEAVING, GONE = "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5"
TERMINATING = Conditions(ready=False, serving=True, terminating=True)
DEAD = Conditions(ready=False, serving=False, terminating=True)


def service(name: str = "dns", ip: str = VIP, node_port: int = 30053) -> Service:
    ports = (
        ServicePort(53, "udp", "UDP", node_port),
        ServicePort(53, "tcp", "TCP", node_port),
    )
    return Service(ServiceMeta(name, "d"), ServiceSpec(type="NodePort", cluster_ip=ip, ports=ports))


def endpoints(*rows: tuple[str, Conditions | None], name: str = "dns") -> EndpointSlice:
    ports = (EndpointPort("udp", 5353, "UDP"), EndpointPort("tcp", 5353, "TCP"))
    meta = SliceMeta(f"{name}-1", "d", SliceLabels(name))
    return EndpointSlice(meta, "IPv4", tuple(Endpoint((address,), flags) for address, flags in rows), ports)


def state(*objects: Service | EndpointSlice) -> State:
    made = State()
    for obj in objects:
        made.upsert(obj)
    return made


def changed(planner: Planner, change: Change | None) -> Fronts:
    """The UDP fronts that a change changes."""
    assert change
    return udp_fronts(planner.plan.ipv4, planner.changed([change])["IPv4"])


def flow(destination: str, port: int, answers_from: str, answers_port: int = 5353) -> Flow:
    return Flow((destination, port), (answers_from, answers_port), b"")


SERVED = ((A, None), (LEAVING, TERMINATING), (GONE, DEAD))

ROWS = (
    ("to an endpoint", flow(VIP, 53, A), SERVED, False),
    ("to one that serves while it terminates, and gets no new clients", flow(VIP, 53, LEAVING), SERVED, False),
    ("to one that serves no more", flow(VIP, 53, GONE), SERVED, True),
    ("to a stranger", flow(VIP, 53, B), SERVED, True),
    ("to another port of an endpoint", flow(VIP, 53, A, 5354), SERVED, True),
    ("not translated, since it is from before the Service", flow(VIP, 53, VIP, 53), SERVED, True),
    ("with no endpoint left", flow(VIP, 53, A), (), True),
    ("to a port of nobody", flow(VIP, 54, B), SERVED, False),
    ("to an address of nobody", flow("10.96.0.11", 53, B), SERVED, False),
    ("to the node port", flow(NODE_IP, 30053, B), SERVED, True),
    ("to the node port, well", flow(NODE_IP, 30053, A), SERVED, False),
    ("to this port of a node's address without node ports", flow(OTHER_IP, 30053, OTHER_IP, 30053), SERVED, False),
    ("to this port of somebody else", flow(ELSEWHERE, 30053, ELSEWHERE, 30053), SERVED, False),
)


@pytest.mark.parametrize(("what", "found", "rows", "wanted"), ROWS, ids=[row[0] for row in ROWS])
def test_a_flow(what: str, found: Flow, rows: tuple[tuple[str, Conditions | None], ...], wanted: bool) -> None:
    family_plan = Planner(state(service(), endpoints(*rows)), NODE, CONFIG).plan.ipv4
    assert is_stale(found, udp_fronts(family_plan, None), family_plan) == wanted, what


def test_only_the_fronts_that_changed_are_looked_at() -> None:
    known = state(
        service(), endpoints((A, None)), service("quiet", "10.96.0.20", 30054), endpoints((A, None), name="quiet")
    )
    planner = Planner(known, NODE, CONFIG)
    fronts = changed(planner, change := known.upsert(endpoints((B, None))))
    assert change
    assert fronts.keys() == {FrontKey(VIP, "UDP", 53), FrontKey("", "UDP", 30053)}
    assert udp_fronts(planner.plan.ipv4, planner.changed([change])["IPv4"]) == {}


def test_an_endpoint_that_no_new_client_gets_and_that_dies_is_a_change() -> None:
    known = state(service(), endpoints((A, None), (LEAVING, TERMINATING)))
    planner = Planner(known, NODE, CONFIG)
    fronts = changed(planner, known.upsert(endpoints((A, None), (LEAVING, DEAD))))
    assert is_stale(flow(VIP, 53, LEAVING), fronts, planner.plan.ipv4)


def test_flows_to_a_service_that_is_gone_go_unless_they_were_never_its_own() -> None:
    known = state(service(), endpoints((A, None)))
    planner = Planner(known, NODE, CONFIG)
    fronts = changed(planner, known.delete(Service, ("d", "dns")))
    flows = [flow(VIP, 53, A), flow(NODE_IP, 30053, A), flow(NODE_IP, 30053, NODE_IP, 30053)]
    assert [is_stale(each, fronts, planner.plan.ipv4) for each in flows] == [True, True, False]


def test_a_flow_to_an_external_ip_is_not_the_node_ports_of_the_same_number() -> None:
    """A Service may have a port at an address of the node whose number is that of its own node port."""
    ports = (ServicePort(53, "udp", "UDP", 30053), ServicePort(30053, "other", "UDP"))
    spec = ServiceSpec(type="NodePort", cluster_ip=VIP, external_ips=(NODE_IP,), ports=ports)
    meta = SliceMeta("dns-other", "d", SliceLabels("dns"))
    others = EndpointSlice(meta, "IPv4", (Endpoint((B,)),), (EndpointPort("other", 5300, "UDP"),))
    known = state(Service(ServiceMeta("dns", "d"), spec), endpoints((A, None)), others)
    planner = Planner(known, NODE, CONFIG)
    fronts = changed(planner, known.upsert(endpoints((LEAVING, None))))
    assert fronts.keys() == {FrontKey(address, "UDP", 53) for address in (VIP, NODE_IP)} | {FrontKey("", "UDP", 30053)}
    flows = [flow(NODE_IP, 53, A), flow(NODE_IP, 30053, B, 5300)]
    assert [is_stale(each, fronts, planner.plan.ipv4) for each in flows] == [True, False]


@pytest.mark.parametrize(
    ("targets", "answers_from", "wanted"),
    [
        ({("192.0.2.1", 41000)}, ("192.0.2.1", 41000), False),
        ({("192.0.2.1", 41000)}, ("192.0.2.1", 41001), True),
        ({("", 41000), ("", 41002)}, ("192.0.2.9", 41002), False),
        ({("", 41000)}, ("192.0.2.9", 41001), True),
        (set(), ("192.0.2.1", 41000), True),
    ],
)
def test_a_flow_to_a_relay(targets: set[tuple[str, int]], answers_from: tuple[str, int], wanted: bool) -> None:
    """Relays get other ports when they open again; without an address of the node they listen on all."""
    family_plan = Planner(state(service(), endpoints((A, None))), NODE, replace(CONFIG, mode=USERSPACE)).plan.ipv4
    fronts = udp_fronts(family_plan, None, lambda _: frozenset(targets))
    assert is_stale(flow(VIP, 53, *answers_from), fronts, family_plan) == wanted
