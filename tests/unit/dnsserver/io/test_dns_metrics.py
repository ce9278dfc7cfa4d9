"""Plain counters, and what a scrape makes of them: CoreDNS's names, labels and buckets."""

from collections.abc import Iterable
from typing import Any

import pytest
from configured import configured
from dns_chain import Behind, server_of
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from kdns.answers.answer import ResponseKind
from kdns.answers.chain import Reply, Request
from kdns.cluster.io.cluster import Cluster
from kdns.cluster.objects import Service
from kdns.cluster.source import ClusterSpec, Scope, Source
from kdns.dns.message import query
from kdns.dns.query import HEADER_BYTES
from kdns.dns.types import NOERROR, NXDOMAIN, SERVFAIL, A, rcode_name, type_label
from kdns.dnsserver.blocks import Server, WireResponse
from kdns.dnsserver.io.exchange import Answering
from kdns.dnsserver.io.metrics import Enabled, gauges
from kdns.dnsserver.io.request_metrics import Requests, listener_metrics, sent_metrics
from kdns.runtime.client_memory import ClientMemory
from kdns.runtime.metrics import COUNTER, Histogram, Metric, MetricFamilies, Sample


def scraped(*collectors: Collector) -> dict[str, float]:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    lines = generate_latest(registry).decode().splitlines()
    return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def count(server: Server, times: int, transport: str = "udp", family: int = 4, **other: Any) -> None:
    """Counts responses of one kind as sent."""
    kind: dict[str, Any] = {
        "zone": ".",
        "qtype": A,
        "rcode": NOERROR,
        "do": False,
        "request_bytes": 50,
        "response_bytes": 100,
    } | other
    server.table.partition(transport, family).counts.add(ResponseKind(**kind, plugin="kubernetes"), times)


def test_a_histogram() -> None:
    histogram = Histogram((1, 2.5))
    for value, count in ((0.5, 1), (1.0, 2), (2.0, 1), (99.0, 3)):
        histogram.add(value, count)
    assert histogram.buckets() == [("1.0", 3.0), ("2.5", 4.0), ("+Inf", 7.0)]
    assert histogram.sum == 0.5 + 2 + 2 + 297
    other = Histogram((1, 2.5))
    other.add(2.0)
    histogram.merge(other)
    assert histogram.buckets() == [("1.0", 3.0), ("2.5", 5.0), ("+Inf", 8.0)]
    assert histogram.sum == 303.5


def test_a_burst_counts_each_query_with_the_mean() -> None:
    requests = Requests()
    requests.observe(0, 5.0)
    requests.observe(4, 0.002)
    assert sum(requests.durations.counts) == 4
    assert requests.durations.sum == pytest.approx(0.002)
    assert requests.durations.counts[1] == 4, "0.5 ms each, in the bucket up to 0.5 ms"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ('coredns_dns_requests_total{family="1",proto="udp",server="dns://:53",type="A",view="",zone="."}', 5.0),
        ('coredns_dns_requests_total{family="2",proto="tcp",server="dns://:53",type="other",view="",zone="."}', 1.0),
        ('coredns_dns_responses_total{plugin="kubernetes",rcode="NOERROR",server="dns://:53",view="",zone="."}', 4.0),
        ('coredns_dns_responses_total{plugin="kubernetes",rcode="NXDOMAIN",server="dns://:53",view="",zone="."}', 2.0),
        ('coredns_dns_do_requests_total{server="dns://:53",view="",zone="."}', 2.0),
        ('coredns_dns_request_size_bytes_count{proto="udp",server="dns://:53",view="",zone="."}', 5.0),
        ('coredns_dns_request_size_bytes_sum{proto="udp",server="dns://:53",view="",zone="."}', 250.0),
        ('coredns_dns_response_size_bytes_bucket{le="100.0",proto="udp",server="dns://:53",view="",zone="."}', 3.0),
        ('coredns_dns_response_size_bytes_bucket{le="+Inf",proto="udp",server="dns://:53",view="",zone="."}', 5.0),
        ('coredns_dns_response_size_bytes_count{proto="tcp",server="dns://:53",view="",zone="."}', 1.0),
        ('coredns_dns_request_duration_seconds_count{server="dns://:53",view="",zone=""}', 3.0),
        ("coredns_panics_total", 3.0),
        ('kdns_dns_unsent_responses_total{server="dns://:53"}', 4.0),
        ('kdns_dns_evicted_connections_total{server="dns://:53"}', 5.0),
        ('kdns_dns_shed_queries_total{server="dns://:53"}', 6.0),
    ],
)
def test_what_is_exposed(key: str, value: float) -> None:
    server = server_of(Behind(defect))
    count(server, 2)
    count(server, 1, "quic")
    count(server, 2, rcode=NXDOMAIN, response_bytes=150, do=True)
    count(server, 1, "tcp", 6, qtype=65280)
    udp, tcp = Requests(panics=1, unsent=4, shed=6), Requests(panics=2, evicted=5)
    udp.observe(2, 0.1)
    tcp.observe(1, 0.1)
    metrics = MetricFamilies(lambda: sent_metrics([server]), lambda: listener_metrics({"dns://:53": [udp, tcp]}))
    assert scraped(metrics)[key] == value


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("duration_seconds", [0.00025 * 2**k for k in range(16)]),
        ("size_bytes", [0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3]),
    ],
)
def test_buckets_are_those_of_coredns(name: str, bounds: list[float]) -> None:
    server, requests = server_of(Behind(defect)), Requests()
    count(server, 1)
    requests.observe(1, 0.1)
    metrics = MetricFamilies(lambda: sent_metrics([server]), lambda: listener_metrics({"dns://:53": [requests]}))
    keys = [key for key in scraped(metrics) if key.startswith(f"coredns_dns_request_{name}_bucket")]
    assert [float(key.split('le="')[1].split('"')[0]) for key in keys] == [*bounds, float("inf")]


def defect(_request: Request) -> Reply:
    raise ZeroDivisionError


HEADER = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
QUESTION = query("a.example.", 1)[HEADER_BYTES:]
ODD: dict[str, tuple[bytes, str, str, str]] = {
    "a header alone": (HEADER, "FORMERR", "other", "dropped"),
    "an UPDATE": (HEADER[:2] + b"\x28\x00" + HEADER[4:] + QUESTION, "NOTIMP", "other", "dropped"),
    "another version of EDNS": (
        HEADER[:-1] + b"\x01" + QUESTION + b"\0\0\x29\x04\xd0\0\x01\0\0\0\0", "BADVERS", "A", "dropped",
    ),
    "no block's": (query("a.test.", 1), "REFUSED", "A", "dropped"),
    "a defect": (query("a.example.", 1), "SERVFAIL", "A", "example."),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_errors_are_counted_like_answers(case: str) -> None:
    packet, rcode, qtype, zone = ODD[case]
    server, requests = server_of(Behind(defect), zone="example."), Requests()
    partition, client = server.table.partition("udp", 4), ("192.0.2.1", 5353)
    outcome = Answering(server, requests, partition, ClientMemory()).answer(packet, client, 0.0)
    assert isinstance(outcome, WireResponse)
    ((kind, times),) = partition.totals()
    assert (rcode_name(kind.rcode), type_label(kind.qtype), kind.zone, times) == (rcode, qtype, zone, 1)
    assert (kind.request_bytes, kind.response_bytes) == (len(packet), len(outcome.wire))
    assert requests.panics == (case == "a defect")


@pytest.mark.parametrize("zone", ["example.", "test."])
@pytest.mark.parametrize("payload_bytes", [0, 1232])
def test_servfail_has_the_question(zone: str, payload_bytes: int) -> None:
    packet = query("A.example.", 1, payload_bytes=payload_bytes)
    server = server_of(Behind(defect), zone=zone)
    partition = server.table.partition("udp", 4)
    answering = Answering(server, Requests(), partition, ClientMemory())
    failure = answering.failed(ZeroDivisionError(), packet, ("192.0.2.1", 5353), 0.0)
    for exchange in (failure, server.overloaded(packet, partition)):
        assert exchange.wire[3] & 15 == SERVFAIL
        assert exchange.wire[4:6] == b"\0\1"
        assert exchange.wire[HEADER_BYTES:].startswith(QUESTION.replace(b"\1a", b"\1A"))
        assert exchange.wire[10:12] == (b"\0\1" if payload_bytes else b"\0\0")


def test_gauges_and_counters() -> None:
    values = {"a": 1.0}

    def samples() -> Iterable[Sample]:
        return [Sample((name,), value) for name, value in values.items()]

    gauges = MetricFamilies()
    gauges.add(Metric("kdns_things", "Things.", ("name",), samples))
    gauges.add(Metric("kdns_deeds", "Deeds.", ("name",), samples, COUNTER))
    assert scraped(gauges) == {'kdns_things{name="a"}': 1.0, 'kdns_deeds_total{name="a"}': 1.0}
    values |= {"a": 2.0, "b": 3.0}
    assert scraped(gauges)['kdns_things{name="b"}'] == 3.0
    assert scraped(gauges)['kdns_deeds_total{name="a"}'] == 2.0


def test_two_followers_of_one_api_have_samples_of_their_own() -> None:
    source = Source(endpoint="http://a:1")
    clusters = tuple(Cluster(ClusterSpec(source, Scope((Service,), labels))) for labels in ("", "app=web"))
    for cluster in clusters:
        cluster.stats.rest.requests["200", "GET", "a:1"] += 2
        cluster.stats.rest.durations["GET", "a:1"] = Histogram((1.0,))
    samples = scraped(gauges(lambda: clusters, (), ()))
    assert samples['kdns_objects{kind="Service",server="http://a:1"}'] == 0
    assert samples['kdns_objects{kind="Service",server="http://a:1 (2)"}'] == 0
    labels = 'code="200",host="a:1",method="GET"'
    assert samples[f"coredns_kubernetes_rest_client_requests_total{{{labels}}}"] == 4
    labels = 'host="a:1",le="1.0",verb="GET"'
    assert samples[f"coredns_kubernetes_rest_client_request_duration_seconds_bucket{{{labels}}}"] == 0


def test_directives_are_listed_with_the_view_of_their_block() -> None:
    (config,) = configured("x {\nbind lo\ndebug\nview old {\nexpr true\n}\nerrors\n}")
    samples = scraped(gauges(tuple, [Enabled("dns://:53", "x.", "old", config)], ()))
    labels = 'server="dns://:53",view="old",zone="x."'
    assert {key for key in samples if key.startswith("coredns_plugin_enabled")} == {
        f'coredns_plugin_enabled{{name="{name}",{labels}}}' for name in ("errors", "view")
    }
