"""Answers remembered through any changes are those of zones that never saw anything but the final state."""

from collections import Counter
from dataclasses import replace
from functools import cache
from ipaddress import ip_address
from typing import TypeAlias

from decoded_message import decode
from dns_chain import cluster_server, respond
from hypothesis import given, settings
from hypothesis import strategies as st

from kdns.answers.order import Order
from kdns.cluster.objects import (
    Conditions,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Key,
    Meta,
    Namespace,
    Object,
    Pod,
    PodIP,
    PodMeta,
    PodStatus,
    Service,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    SliceLabels,
    SliceMeta,
    TargetRef,
)
from kdns.cluster.state import State
from kdns.dns.message import query
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import type_number
from kdns.dnsserver.blocks import Server
from kdns.plugins.sources.kubernetes.options import Options, PodMode
from kdns.plugins.sources.kubernetes.plugin import Kubernetes

KINDS: tuple[type[Object], ...] = (Service, EndpointSlice, Pod, Namespace)
Put: TypeAlias = Object
Delete: TypeAlias = tuple[type[Object], Key]
Asked: TypeAlias = tuple[str, str]

SPACES = ("a", "b")
SERVICES = ("s", "t", "x")
CLUSTER_IPS = ("10.0.0.1", "10.0.0.2", "fd00::1")
ENDPOINT_IPS = ("10.1.0.1", "10.1.0.2", "10.0.0.1", "fd00:1::1")
POD_IPS = ("10.1.0.1", "10.2.0.1", "fd00:1::1")
OWN_IP = "10.1.0.2"
EXTERNAL = (
    "s.a.svc.cluster.local",
    "T.B.svc.Cluster.Local.",
    "x.a.svc.cluster.local",
    "missing.a.svc.cluster.local",
    "cluster.local",
    "1.0.0.10.in-addr.arpa",
    "10-2-0-1.a.pod.cluster.local",
    "example.org",
    "",
)
PORTS = (("http", "TCP"), ("http", "UDP"), ("", "TCP"))
TYPES = ("A", "AAAA", "SRV", "PTR", "TXT", "NS")

service_names = st.sampled_from(SERVICES)
spaces = st.sampled_from(SPACES)


@st.composite
def services(draw: st.DrawFn) -> Service:
    ports = tuple(
        ServicePort(80 + number, name, protocol)
        for number, (name, protocol) in enumerate(draw(st.lists(st.sampled_from(PORTS), unique=True, max_size=2)))
    )
    addresses = tuple(draw(st.lists(st.sampled_from(CLUSTER_IPS), unique=True, min_size=1, max_size=2)))
    spec = draw(
        st.one_of(
            st.just(ServiceSpec(cluster_ip=addresses[0], cluster_ips=addresses, ports=ports)),
            st.just(ServiceSpec(cluster_ip="None", cluster_ips=("None",), ports=ports)),
            st.just(ServiceSpec(ports=ports)),
            st.builds(ServiceSpec, type=st.just("ExternalName"), external_name=st.sampled_from(EXTERNAL)),
        )
    )
    return Service(ServiceMeta(draw(service_names), draw(spaces)), spec)


endpoints = st.builds(
    Endpoint,
    st.lists(st.sampled_from(ENDPOINT_IPS), unique=True, min_size=1, max_size=2).map(tuple),
    st.sampled_from([None, Conditions(None), Conditions(True), Conditions(False)]),
    st.sampled_from([None, None, "h", "H2"]),
    st.sampled_from([None, TargetRef("Pod", "pod-1", "a")]),
)
fqdn_endpoints = st.builds(Endpoint, st.sampled_from([("one.example",), ("two.example",), ("s.b.svc.cluster.local",)]))
ports = st.lists(
    st.builds(EndpointPort, st.sampled_from(["http", "", None]), st.sampled_from([80, 81, None])), max_size=2
).map(tuple)


@st.composite
def slices(draw: st.DrawFn) -> EndpointSlice:
    owner = draw(st.sampled_from([*SERVICES, *SERVICES, ""]))
    meta = SliceMeta(
        draw(st.sampled_from(["e1", "e2", "e3", "e4", "e5"])), draw(spaces), SliceLabels(owner) if owner else None
    )
    if draw(st.integers(0, 5)) == 0:
        return EndpointSlice(meta, "FQDN", tuple(draw(st.lists(fqdn_endpoints, max_size=1))), draw(ports))
    return EndpointSlice(meta, "IPv4", tuple(draw(st.lists(endpoints, max_size=3))), draw(ports))


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    addresses = tuple(PodIP(ip) for ip in draw(st.lists(st.sampled_from(POD_IPS), unique=True, max_size=2)))
    status = PodStatus(draw(st.sampled_from(["Running", "Succeeded"])), addresses[0].ip if addresses else "", addresses)
    leaving = draw(st.sampled_from([None, None, "2026-01-01T00:00:00Z"]))
    return Pod(PodMeta(draw(st.sampled_from(["p", "q"])), draw(spaces), leaving), status)


namespaces = spaces.map(lambda name: Namespace(Meta(name)))
puts = st.one_of(services(), slices(), slices(), pods(), namespaces)
keys = st.tuples(spaces, st.sampled_from([*SERVICES, "e1", "e2", "e3", "e4", "e5", "p", "q"]))
deletes = st.one_of(
    st.tuples(st.sampled_from(KINDS[:3]), keys), st.tuples(st.just(Namespace), spaces.map(lambda name: ("", name)))
)


def names() -> list[str]:
    """Names that exist in some states, names above and below them, and names that never do."""
    found = ["", "svc", "pod", "dns", "ns.dns", "dns-version", "x.svc", "a.pod", "b.svc", "a.svc", "nobody"]
    for space in SPACES:
        for service in SERVICES:
            base = f"{service}.{space}.svc"
            below = ("_tcp", "_http._tcp", "_http._udp", "_._tcp", "h", "h2", "pod-1", "10-1-0-1", "fd00-1--1", "none")
            found += [base, *(f"{label}.{base}" for label in (*below, "one-example"))]
        found += [f"10-1-0-1.{space}.pod", f"10-2-0-1.{space}.pod", f"fd00-1--1.{space}.pod", f"x.{space}.pod"]
    addresses = (*CLUSTER_IPS, *ENDPOINT_IPS, "10.9.9.9")
    reverse = [ip_address(ip).reverse_pointer for ip in addresses]
    reverse += ["10.in-addr.arpa", "0.10.in-addr.arpa", "9.10.in-addr.arpa", "in-addr.arpa", "d.f.ip6.arpa"]
    outside = ["example.org", "local", "x.ip6.arpa"]
    return [*(f"{name}.cluster.local".lstrip(".") for name in found), *reverse, *outside]


NAMES = names()
QUESTIONS: tuple[Asked, ...] = tuple((name, qtype) for name in NAMES for qtype in TYPES)
questions = st.lists(st.sampled_from(QUESTIONS), max_size=60)
OPTIONS = st.builds(
    Options,
    zones=st.just(("cluster.local.", "in-addr.arpa.", "ip6.arpa.")),
    pods=st.sampled_from(PodMode),
    endpoint_pod_names=st.booleans(),
    endpoints=st.sampled_from([True, True, True, False]),
    ignore_empty_service=st.booleans(),
    namespaces=st.sampled_from([None, None, frozenset({"a"})]),
    own_addresses=st.sampled_from([(), (ip_address(OWN_IP).packed,)]),
)


def server_of(state: State, options: Options, *, rotate: bool = False) -> tuple[Server, Kubernetes]:
    return cluster_server(state, options, order=Order(rotate=rotate))


def apply(state: State, event: Put | Delete, cluster: Kubernetes, now_s: float) -> None:
    change = state.delete(*event) if isinstance(event, tuple) else state.upsert(event)
    if change:
        cluster.changed([change], now_s)


def rebuilt(state: State) -> State:
    """A state that only ever saw the objects there are now."""
    fresh = State(synced=set(state.synced))
    for stored in (state.namespaces, state.services, state.slices, state.pods):
        for obj in stored.values():
            fresh.upsert(obj)
    return fresh


@cache
def packet_of(name: str, qtype: str) -> bytes:
    return query(name, type_number(qtype), payload_bytes=4096)


def answered(server: Server, asked: Asked) -> bytes:
    return respond(server, packet_of(*asked))


def meaning(response: bytes) -> object:
    """A response without its id, its serial and the order of its records."""
    decoded = decode(response)
    sections = (decoded.answer, decoded.authority, decoded.additional)
    return decoded.rcode, decoded.flags, *(Counter(map(without_serial, part)) for part in sections)


def without_serial(rrset: RRset) -> RRset:
    (rdata,) = rrset.rdata
    return replace(rrset, rdata=(replace(rdata, serial=0),)) if isinstance(rdata, Soa) else rrset


def assert_equal(server: Server, cluster: Kubernetes, options: Options, asked: tuple[Asked, ...]) -> None:
    """Compares meanings only where bytes differ: by the order of records, as the serials are the same."""
    fresh, fresh_cluster = server_of(rebuilt(cluster.zones.state), options)
    fresh_cluster.renew(cluster.zones.serial)
    for one in asked:
        kept, new = answered(server, one), answered(fresh, one)
        assert kept == new or meaning(kept) == meaning(new), f"{one}: {decode(kept)}, from scratch {decode(new)}"


@given(OPTIONS, st.lists(st.tuples(st.one_of(puts, puts, deletes), questions), max_size=15), st.booleans())
def test_the_table_after_any_events_is_the_table_built_from_scratch(
    options: Options, steps: list[tuple[Put | Delete, list[Asked]]], rotate: bool
) -> None:
    state = State(synced=set(KINDS))
    for space in SPACES:
        state.upsert(Namespace(Meta(space)))
    server, cluster = server_of(state, options, rotate=rotate)
    for number, (event, asked) in enumerate(steps):
        apply(state, event, cluster, now_s=1000.0 + number)
        assert_equal(server, cluster, options, tuple(asked))
    assert_equal(server, cluster, options, QUESTIONS)


@given(OPTIONS, st.lists(st.one_of(puts, deletes), max_size=8), st.one_of(puts, deletes))
def test_one_change_leaves_no_stale_answer_among_all_questions(
    options: Options, before: list[Put | Delete], event: Put | Delete
) -> None:
    """The table is full of every answer when the change comes: nothing hides behind a question never asked."""
    state = State(synced=set(KINDS))
    server, cluster = server_of(state, options)
    for space in SPACES:
        apply(state, Namespace(Meta(space)), cluster, 1.0)
    for one in before:
        apply(state, one, cluster, 2.0)
    for question in QUESTIONS:
        answered(server, question)
    assert len(server.table) > len(QUESTIONS) * 0.9
    apply(state, event, cluster, 3.0)
    assert_equal(server, cluster, options, QUESTIONS)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["s", "t", "x"]), st.integers(1, 9)), min_size=200, max_size=200))
def test_the_index_of_subjects_does_not_grow_with_changes(events: list[tuple[str, int]]) -> None:
    """An answer about several Services is forgotten whole: no index entry outlives it, whichever of them changed."""
    state = State(synced=set(KINDS))
    server, cluster = server_of(state, Options())
    for obj in (
        Namespace(Meta("a")),
        Service(ServiceMeta("alias", "a"), ServiceSpec("ExternalName", external_name="alias2.a.svc.cluster.local")),
        Service(ServiceMeta("alias2", "a"), ServiceSpec("ExternalName", external_name="s.a.svc.cluster.local")),
    ):
        apply(state, obj, cluster, 1.0)
    for name, number in events:
        apply(state, Service(ServiceMeta(name, "a"), ServiceSpec(cluster_ip=f"10.0.0.{number}")), cluster, 1.0)
        answered(server, ("alias.a.svc.cluster.local", "A"))
    assert len(server.table) == 1
    assert sum(map(len, server.table._dependents.values())) == 3  # noqa: SLF001 - what the index keeps is the point
