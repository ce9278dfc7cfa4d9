"""The option `explain` of `kubernetes`: negative answers say why, to clients that can read it, within bounds."""

import dnslib
import msgspec
import pytest
from dns_chain import cluster_server, respond
from fake_api import endpoint_slice, meta, service

from kdns.cluster.objects import EndpointSlice, Namespace, Service
from kdns.cluster.state import State
from kdns.dns.message import query
from kdns.dns.types import EXTENDED_ERROR, type_number
from kdns.dnsserver.blocks import Server
from kdns.plugins.sources.kubernetes.causes import MAX_ENDPOINTS
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.plugin import EXPLAINED_PER_S, Kubernetes


def state() -> State:
    made = State()
    for name in ("default", "shop"):
        made.upsert(msgspec.convert(meta(name), Namespace))
    made.upsert(msgspec.convert(service("cart", namespace="shop"), Service))
    made.upsert(msgspec.convert(service("db", "None", "shop"), Service))
    idle = endpoint_slice("db", namespace="shop")
    idle["endpoints"][0] |= {"conditions": {"ready": False}, "targetRef": {"kind": "Pod", "name": "db-0"}}
    made.upsert(msgspec.convert(idle, EndpointSlice))
    made.upsert(msgspec.convert(service("lonely", "None", "shop"), Service))
    made.synced = {Namespace, Service, EndpointSlice}
    return made


def served(*, explain: bool = True) -> tuple[Server, Kubernetes, State]:
    objects = state()
    return *cluster_server(objects, Options(("cluster.local.", "in-addr.arpa."), explain=explain)), objects


def why(server: Server, name: str, qtype: str = "A", *, payload_bytes: int = 1232) -> str:
    """The text of the Extended DNS Error; "" without one."""
    wire = respond(server, query(name, type_number(qtype), payload_bytes=payload_bytes))
    for record in dnslib.DNSRecord.parse(wire).ar:
        for option in record.rdata if isinstance(record.rdata, list) else ():
            if option.code == EXTENDED_ERROR:
                assert option.data[:2] == b"\0\0"
                return bytes(option.data[2:]).decode()
    return ""


@pytest.mark.parametrize(
    ("name", "qtype", "text"),
    [
        ("cart.shop.svc.cluster.local.", "A", ""),
        ("cart.shop.svc.cluster.local.", "AAAA", "Service shop/cart has no IPv6 cluster IP"),
        ("crt.shop.svc.cluster.local.", "A", 'there is no Service "crt" in "shop"; there is "cart"'),
        ("cart.shp.svc.cluster.local.", "A", 'there is no Namespace "shp"; there is "shop"'),
        ("_web._tcp.cart.shop.svc.cluster.local.", "SRV", 'Service shop/cart has no port "web"'),
        ("db.shop.svc.cluster.local.", "A", "it matches 1 Pod, which is not Ready (db-0, 10.244.0.9)"),
        (
            "lonely.shop.svc.cluster.local.",
            "A",
            "no endpoint of headless Service shop/lonely is ready: it has no endpoints",
        ),
        ("cart.shop.cluster.local.", "A", "`svc` is missing"),
        ("1.2.0.192.in-addr.arpa.", "PTR", "no Service, endpoint or Pod has address 192.0.2.1"),
    ],
)
def test_a_negative_answer_says_why(name: str, qtype: str, text: str) -> None:
    server, _, _ = served()
    said = why(server, name, qtype)
    assert said.startswith(text) or text in said
    assert bool(said) == bool(text)
    assert why(server, name, qtype) == said, "the table has it too"
    assert why(server, name, qtype, payload_bytes=0) == ""
    assert why(served(explain=False)[0], name, qtype) == ""


def test_any_change_may_change_the_reason() -> None:
    server, plugin, objects = served()
    assert 'there is "cart"' in why(server, "crt.shop.svc.cluster.local.")
    change = objects.delete(Service, ("shop", "cart"))
    assert change
    plugin.changed([change], 1.0)
    assert why(server, "crt.shop.svc.cluster.local.") == 'there is no Service "crt" in "shop"'


def test_random_names_cost_no_more_than_a_bound() -> None:
    server, _, _ = served()
    said = [why(server, f"x{number}.shop.svc.cluster.local.") for number in range(2 * EXPLAINED_PER_S)]
    assert sum(map(bool, said)) == EXPLAINED_PER_S


@pytest.mark.parametrize(
    ("name", "qtype", "text"),
    [
        ("db", "AAAA", "Service shop/db has 1001 endpoints: `kdns explain` looks at them"),
        ("db-7.db", "A", "Service shop/db has 1001 endpoints: `kdns explain` looks at them"),
        ("_web._tcp.db", "SRV", 'Service shop/db has no port "web"'),
    ],
)
def test_many_endpoints_are_not_looked_at(name: str, qtype: str, text: str) -> None:
    server, _, objects = served()
    crowd = endpoint_slice("db", namespace="shop")
    crowd["endpoints"] *= MAX_ENDPOINTS + 1
    objects.upsert(msgspec.convert(crowd, EndpointSlice))
    assert why(server, f"{name}.shop.svc.cluster.local.", qtype).startswith(text)


def test_what_is_not_known_yet_is_not_explained() -> None:
    server, _, objects = served()
    objects.synced.clear()
    assert why(server, "crt.shop.svc.cluster.local.") == ""
