"""For random clusters, Corefiles, questions and changes: compiled chains answer and count as whole ones."""

from itertools import product
from typing import TypeAlias

import pytest
from chain_world import ChainWorld
from decoded_message import decode
from dns_chain import Behind, FakeWorld
from dns_client import with_options
from hypothesis import given, settings
from hypothesis import strategies as st
from test_answer_table import KINDS, NAMES, SPACES, Delete, Put, deletes, puts

from kdns.answers.chain import Chain, Reply, Sees
from kdns.answers.response import Response
from kdns.cluster.objects import (
    Conditions,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Meta,
    Namespace,
    Service,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    SliceLabels,
    SliceMeta,
)
from kdns.cluster.state import Change, State
from kdns.dns.message import query
from kdns.dns.query import AD, CD, RA, RD, Z
from kdns.dns.rrset import RRset
from kdns.dns.types import COOKIE, A, type_number
from kdns.plugins.changes.cache.plugin import Cache
from kdns.plugins.sources.kubernetes.plugin import Kubernetes

BEFORE = (
    "errors", "cancel", "any", "chaos", "nsid", "bufsize 600", "cache", "cache 3", "cache svc.cluster.local", "minimal",
    "cache in-addr.arpa", "loadbalance", "local", "transfer {\n to *\n }",
)  # fmt: skip
EXISTING = (
    *(
        f"{host}s.a.svc.cluster.local"
        for host in ("", "_http._tcp.", "_http._tcp.", "_https._tcp.", "10-1-0-1.", "_tcp.")
    ),
    *(f"{host}t.a.svc.cluster.local" for host in ("", "_http._tcp.", "_http._tcp.", "_http._udp.", "x.")),
    *(
        "1.0.0.10.in-addr.arpa",
        "1.0.1.10.in-addr.arpa",
        "2.0.1.10.in-addr.arpa",
        "10-1-0-1.a.pod.cluster.local",
        "t.a.svc.cluster.local.cluster.local",
    ),
)
"""Names of a headless Service and of one with cluster IPs that are there at first, and names near them."""
WITH_COOKIE = 1400
"""The payload size of queries that have a cookie."""
Question: TypeAlias = tuple[str, str, int, int, str]

blocks = st.sampled_from(
    (
        (".",),
        (".",),
        ("cluster.local.", "."),
        (".", "a.svc.cluster.local."),
        ("local.", "in-addr.arpa."),
        ("x.a.svc.cluster.local.", "."),
    )
)
questions = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(EXISTING), st.sampled_from(NAMES)),
        st.sampled_from(("A", "A", "AAAA", "SRV", "SRV", "PTR", "TXT", "HTTPS", "CNAME", "SOA", "DS", "ANY", "URI")),
        st.sampled_from((0, 512, 700, 1232, 4096, WITH_COOKIE)),
        st.sampled_from((RD, RD, RD | AD, RD | CD, 0, RD | Z)),
        st.sampled_from(("udp", "udp", "tcp")),
    ),
    min_size=30,
    max_size=60,
)
events = st.one_of(puts, puts, puts, deletes)


def first_objects() -> list[Put]:
    ports = (ServicePort(80, "http"), ServicePort(443, "https"))
    addresses = ("10.1.0.1", "10.1.0.2", "fd00:1::1", *(f"10.1.0.{number}" for number in range(4, 11)))
    endpoints = tuple(
        Endpoint((address,), Conditions(True), "h" if number in {2, 3} else None)
        for number, address in enumerate(addresses)
    )
    headless = Service(ServiceMeta("s", "a"), ServiceSpec(cluster_ip="None", cluster_ips=("None",), ports=ports))
    with_ips = ServiceSpec(cluster_ip="10.0.0.1", cluster_ips=("10.0.0.1", "fd00::1"), ports=ports)
    open_ports = (EndpointPort("http", 8080), EndpointPort("https", 8443))
    return [
        headless,
        Service(ServiceMeta("x", "a"), headless.spec),
        Service(ServiceMeta("t", "a"), with_ips),
        EndpointSlice(SliceMeta("e1", "a", SliceLabels("s")), "IPv4", endpoints, open_ports),
        EndpointSlice(SliceMeta("e2", "a", SliceLabels("s")), "IPv4", endpoints[:1], open_ports[:1]),
        EndpointSlice(SliceMeta("e3", "a", SliceLabels("x")), "IPv4", endpoints[:2], open_ports),
    ]


def packet_of(name: str, qtype: str, payload_bytes: int, flags: int) -> bytes:
    packet = query(name, type_number(qtype), payload_bytes=payload_bytes)
    if payload_bytes == WITH_COOKIE:
        packet = with_options(packet, (COOKIE, b"12345678"))
    return packet[:2] + flags.to_bytes(2, "big") + packet[4:]


@st.composite
def corefiles(draw: st.DrawFn) -> str:
    """The directives of a server block, some in front of `kubernetes`."""
    options = [
        f"pods {draw(st.sampled_from(['disabled', 'insecure', 'verified']))}",
        f"ttl {draw(st.sampled_from([0, 5, 30]))}",
        *draw(
            st.sampled_from(
                [
                    [],
                    [],
                    ["endpoint_pod_names"],
                    ["ignore empty_service"],
                    ["namespaces b"],
                    ["noendpoints"],
                    ["explain"],
                ]
            )
        ),
        draw(st.sampled_from(["", "", "fallthrough in-addr.arpa", "fallthrough", "fallthrough a.svc.cluster.local"])),
    ]
    reverse = "cluster.local in-addr.arpa ip6.arpa"
    zones = draw(
        st.sampled_from([reverse, reverse, "svc.cluster.local cluster.local", "a.svc.cluster.local in-addr.arpa"])
    )
    before = draw(st.lists(st.sampled_from(BEFORE), unique_by=lambda stanza: stanza.split()[0], max_size=4))
    return "\n".join((*before, f"kubernetes {zones} {{", *options, "}"))


def elsewhere() -> Behind:
    """Answers with an address everything that falls through; a cache may keep it."""
    return Behind(
        lambda request: Response(
            0, RA, (RRset(request.query.name, A, 60, (bytes((192, 0, 2, 1)),)),), plugin="elsewhere"
        ),
        Sees.PACKET,
    )


class World(ChainWorld):
    """A server of these directives over a cluster; of several zones, all but the first have no cluster."""

    def __init__(self, stanzas: str, zones: tuple[str, ...], state: State, *, is_compiled: bool = True) -> None:
        other, setup = Chain([elsewhere()]), FakeWorld(state=state)
        super().__init__(stanzas, elsewhere(), setup=setup, is_compiled=is_compiled, elsewhere=other, zones=zones)

    def change(self, change: Change, now_s: float) -> None:
        for plugin in self.setup.built:
            if isinstance(plugin, Kubernetes):
                plugin.changed([change], now_s)


@settings(max_examples=2 * settings().max_examples)
@given(corefiles(), blocks, st.lists(events, max_size=4), questions, st.lists(events, max_size=3))
def test_compiled_chains_answer_and_count_as_whole_ones(
    corefile: str, zones: tuple[str, ...], before: list[Put | Delete], asked: list[Question], later: list[Put | Delete]
) -> None:
    state = State(synced=set(KINDS))
    for space in SPACES:
        state.upsert(Namespace(Meta(space)))
    worlds = [World(corefile, zones, state, is_compiled=is_compiled) for is_compiled in (True, False)]
    batches: list[list[Put | Delete]] = [[], [*first_objects()], before, later]
    for now_s, batch in enumerate(batches):
        for event in batch:
            if change := state.delete(*event) if isinstance(event, tuple) else state.upsert(event):
                for world in worlds:
                    world.change(change, now_s)
        for name, qtype, payload_bytes, flags, transport in asked:
            packet = packet_of(name, qtype, payload_bytes, flags)
            compiled, whole = (world.ask(packet, transport) for world in worlds)
            assert compiled == whole, f"{name} {qtype}: {decode(compiled)}, from the whole chain {decode(whole)}"
    assert worlds[0].responses() == worlds[1].responses()
    assert worlds[0].counts() == worlds[1].counts()


def fail(*_: object) -> Reply:
    raise AssertionError


KUBEADM = """errors
kubernetes cluster.local in-addr.arpa ip6.arpa {
  pods insecure
  fallthrough in-addr.arpa ip6.arpa
  ttl 30
}
cache 30 {
  disable success cluster.local
  disable denial cluster.local
}
loadbalance
"""


def test_what_clusters_ask_most_never_takes_the_whole_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the property would prove nothing."""
    world = World(KUBEADM, (".",), with_first_objects())
    monkeypatch.setattr(Kubernetes, "serve", fail)
    monkeypatch.setattr(Cache, "_serve", fail)
    world.server.swap(world.server.blocks)
    own, headless = "t.a.svc.cluster.local", "s.a.svc.cluster.local"
    asked = [
        *product((own, headless), ("A", "AAAA", "HTTPS")),
        *((f"_http._tcp.{name}", "SRV") for name in (own, headless)),
        *product(
            (f"{own}.{suffix}" for suffix in ("a.svc.cluster.local", "svc.cluster.local", "cluster.local")),
            ("A", "AAAA"),
        ),
        *(("none.a.svc.cluster.local", "A"), ("1.0.0.10.in-addr.arpa", "PTR"), ("5.0.1.10.in-addr.arpa", "PTR")),
        ("10-1-0-1.a.pod.cluster.local", "A"),
    ]
    for name, qtype in asked:
        assert world.ask(packet_of(name, qtype, 1232, RD | AD), "udp"), (name, qtype)


def with_first_objects() -> State:
    state = State(synced=set(KINDS))
    for one in (Namespace(Meta("a")), *first_objects()):
        state.upsert(one)
    return state


def test_what_a_cache_has_of_a_name_stands_before_a_new_service() -> None:
    """As in the chain: the name fell through before the Service was there, and the cache keeps that for its TTL."""
    corefile = "cache\nkubernetes cluster.local {\nfallthrough\n}"
    state = State(synced=set(KINDS))
    state.upsert(Namespace(Meta("a")))
    world = World(corefile, (".",), state)
    packet = packet_of("t.a.svc.cluster.local", "A", 0, RD)
    world.ask(packet, "udp")
    for decoded in first_objects():
        if change := state.upsert(decoded):
            world.change(change, 1.0)
    assert decode(world.ask(packet, "tcp")).answer[0].rdata == (bytes((192, 0, 2, 1)),)
