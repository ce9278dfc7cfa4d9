"""`k8s_external`: what the recorded cases do not say, and that the table forgets its answers."""

from typing import Any

import msgspec
import pytest
from decoded_message import decode
from dns_chain import FakeWorld, respond, server_of

from kdns.cluster.objects import EndpointSlice, Namespace, Object, Service
from kdns.cluster.state import State
from kdns.dns.message import query
from kdns.dns.types import type_number
from kdns.dnsserver.blocks import Server
from kdns.plugins.sources.k8s_external import External, ExternalConfig
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.plugin import Kubernetes

ZONES = ("example.org.", "192.in-addr.arpa.")


def of(
    kind: type[Object], name: str, namespace: str = "shop", labels: dict[str, str] | None = None, **fields: Any
) -> Object:
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace, "labels": labels}, **fields}, kind)


def balanced(name: str, *ingress: dict[str, str]) -> Object:
    spec = {"clusterIP": "10.96.0.1", "ports": [{"name": "http", "port": 80}]}
    return of(Service, name, spec=spec, status={"loadBalancer": {"ingress": ingress}})


OBJECTS = (
    of(Namespace, "shop", ""),
    balanced("web", {"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}),
    balanced("named", {"hostname": "lb.example.net"}),
    of(Service, "inside", spec={"clusterIP": "10.96.0.2"}),
    of(Service, "db", spec={"clusterIP": "None"}),
    of(
        EndpointSlice,
        "db-1",
        labels={"kubernetes.io/service-name": "db"},
        endpoints=[{"addresses": ["192.0.2.9"], "hostname": "db-0"}, {"addresses": ["192.0.2.2"], "hostname": "db-1"}],
        ports=[{"name": "sql", "port": 5432}],
    ),
)


def served(config: ExternalConfig, *objects: Object) -> tuple[Server, Kubernetes]:
    state = State()
    for obj in objects:
        state.upsert(obj)
    state.synced |= {Service, EndpointSlice, Namespace}
    setup = FakeWorld(state=state)
    cluster = Kubernetes(state, Options(own_addresses=(b"\xc0\x00\x02\x35",)), setup)
    setup.built = (External(config, setup), cluster)
    server = server_of(*setup.built)
    setup.servers.append(server)
    return server, cluster


def answer(server: Server, question: str) -> str:
    """The answer section as text, or the rcode where it is empty."""
    name, qtype = question.split()
    got = respond(server, query(name, type_number(qtype)))
    decoded = decode(got)
    rdata = [rdata for rrset in decoded.answer for rdata in rrset.rdata]
    texts = [".".join(map(str, rdatum)) if isinstance(rdatum, bytes) else str(rdatum) for rdatum in rdata]
    return " ".join(sorted(texts)) or decoded.rcode


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("web.shop.example.org. A", "192.0.2.1 192.0.2.2"),
        ("web.shop.example.org. AAAA", "NOERROR"),
        ("_tcp.web.shop.example.org. A", "NOERROR"),
        ("_http._udp.web.shop.example.org. SRV", "NXDOMAIN"),
        ("named.shop.example.org. AAAA", "lb.example.net."),
        ("_tcp.named.shop.example.org. TXT", "NOERROR"),
        ("_sql._tcp.named.shop.example.org. SRV", "NXDOMAIN"),
        ("inside.shop.example.org. A", "NXDOMAIN"),
        ("db-0.db.shop.example.org. A", "192.0.2.9"),
        ("9.2.0.192.in-addr.arpa. PTR", "db-0.db.shop.example.org."),
        ("2.2.0.192.in-addr.arpa. PTR", "web.shop.example.org."),
        ("2.0.192.in-addr.arpa. PTR", "NOERROR"),
        ("3.0.192.in-addr.arpa. PTR", "NXDOMAIN"),
        ("1.0.96.10.in-addr.arpa. PTR", "SERVFAIL"),
        ("dns.example.org. A", "NOERROR"),
        ("ns1.dns.example.org. A", "192.0.2.53"),
        ("web.dns.example.org. A", "NXDOMAIN"),
    ],
)
def test_names(question: str, expected: str) -> None:
    server, _ = served(ExternalConfig(ZONES, headless=True), *OBJECTS)
    assert answer(server, question) == expected
    assert answer(server, question) == expected


@pytest.mark.parametrize(
    ("change", "question", "before", "after"),
    [
        (balanced("web", {"ip": "192.0.2.7"}), "web.shop.example.org. A", "192.0.2.1 192.0.2.2", "192.0.2.7"),
        (balanced("web", {"ip": "192.0.2.7"}), "1.2.0.192.in-addr.arpa. PTR", "web.shop.example.org.", "NXDOMAIN"),
        (balanced("web", {"ip": "192.0.2.7"}), "7.2.0.192.in-addr.arpa. PTR", "NXDOMAIN", "web.shop.example.org."),
        (balanced("web"), "_http._tcp.web.shop.example.org. TXT", "NOERROR", "NXDOMAIN"),
        (balanced("new", {"ip": "192.1.0.1"}), "0.1.192.in-addr.arpa. PTR", "NXDOMAIN", "NOERROR"),
        (
            of(Service, "db", spec={"clusterIP": "10.96.0.9"}),
            "db.shop.example.org. A",
            "192.0.2.2 192.0.2.9",
            "NXDOMAIN",
        ),
        (of(EndpointSlice, "db-1"), "db-0.db.shop.example.org. A", "192.0.2.9", "NXDOMAIN"),
    ],
)
def test_the_table_forgets(change: Object, question: str, before: str, after: str) -> None:
    server, cluster = served(ExternalConfig(ZONES, headless=True), *OBJECTS)
    assert answer(server, question) == before
    assert len(server.table) == 1
    made = cluster.zones.state.upsert(change)
    assert made
    cluster.changed([made], 1.0)
    assert answer(server, question) == after


def test_negative_answers_get_the_new_serial() -> None:
    server, cluster = served(ExternalConfig(ZONES), *OBJECTS)
    packet = query("none.shop.example.org.", 1)
    respond(server, packet)
    change = cluster.zones.state.upsert(balanced("other", {"ip": "192.0.2.8"}))
    assert change
    cluster.changed([change], 77.0)
    assert len(server.table) == 1
    got = respond(server, packet)
    (soa,) = decode(got).authority[0].rdata
    assert getattr(soa, "serial", None) == 77


def test_without_a_cluster_it_passes_on_and_says_so() -> None:
    setup = FakeWorld()
    plugin = External(ExternalConfig(ZONES), setup)
    setup.built = (plugin,)
    assert answer(server_of(plugin), "web.shop.example.org. A") == "SERVFAIL"
    coroutine = plugin.check()
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert [line["directive"] for line in setup.lines] == ["k8s_external"]
