"""Frequent values in bounded memory, and what a search list makes of names."""

import random

import pytest

from kdns.dns.names import labels_of
from kdns.dns.query import query_for
from kdns.dns.types import AAAA, SRV, A
from kdns.status.samples import Sample, Samples, sample_of, searched
from kdns.status.toplist import TopList

ZONES = ("cluster.local",)


def is_namespace(name: str) -> bool:
    return name in {"default", "shop"}


def test_frequent_values_are_found_among_many() -> None:
    top, chance = TopList[int](64), random.Random(1)
    for _ in range(50_000):
        top.add(chance.randrange(10) if chance.random() < 0.4 else chance.randrange(1000, 10**9))
        assert len(top) <= 64
    most = top.most(10)
    assert {entry.value for entry in most} == set(range(10))
    assert all(0.02 <= entry.weight / top.total <= 0.045 for entry in most)


def test_a_weight_is_never_more_than_it_was() -> None:
    top, counts, chance = TopList[int](8), dict[int, int](), random.Random(2)
    for _ in range(5000):
        value = min(chance.randrange(40), chance.randrange(40))
        counts[value] = counts.get(value, 0) + 1
        top.add(value)
    assert all(entry.weight <= counts[entry.value] for entry in top.most(8))


def test_what_fades_is_forgotten() -> None:
    top = TopList[str]()
    top.add("often", 100)
    top.add("once", 1)
    top.fade(0.5)
    assert [(entry.value, entry.weight) for entry in top.most(5)] == [("often", 50), ("once", 0.5)]
    assert top.total == 50.5
    for _ in range(6):
        top.fade(0.5)
    assert [entry.value for entry in top.most(5)] == ["often"]
    for _ in range(14):
        top.fade(0.5)
    assert len(top) == 0


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("api.example.com.default.svc.cluster.local.", "api.example.com."),
        ("api.example.com.svc.cluster.local.", "api.example.com."),
        ("api.example.com.cluster.local.", "api.example.com."),
        ("web.shop.svc.cluster.local.", ""),
        ("web.shop.default.svc.cluster.local.", "web.shop."),
        ("web.shop.cluster.local.", "web.shop."),
        ("web.nowhere.svc.cluster.local.", "web.nowhere."),
        ("web.cluster.local.", ""),
        ("api.example.com.", ""),
        ("cluster.local.", ""),
    ],
)
def test_names_of_a_search_list(name: str, written: str) -> None:
    assert searched(name, ZONES, is_namespace) == written


def test_a_query_is_read_with_its_response() -> None:
    query = query_for(labels_of("_http._TCP.Web."), SRV)
    nxdomain = bytes((0, 0, 0x84, 3)) + bytes(8)
    assert sample_of(query.packet, "10.0.0.1", nxdomain) == Sample("10.0.0.1", "_http._tcp.web.", "SRV", "NXDOMAIN")
    assert sample_of(query.packet, "10.0.0.1", b"") == Sample("10.0.0.1", "_http._tcp.web.", "SRV", "")
    assert sample_of(b"no query", "10.0.0.1", b"") is None


def test_a_storm_is_named_with_its_busiest_client() -> None:
    samples = Samples()
    failing = [
        Sample(client, f"api.example.com.{search}", qtype, "NXDOMAIN")
        for client in ("10.0.0.1", "10.0.0.2", "10.0.0.2")
        for search in ("default.svc.cluster.local.", "svc.cluster.local.", "cluster.local.")
        for qtype in ("A", "AAAA")
    ]
    found = [Sample("10.0.0.3", "web.shop.svc.cluster.local.", "A", "NOERROR")] * 18
    samples.add([*failing, *found], 10.0, ZONES, is_namespace)
    (storm,) = samples.storms()
    assert storm == ("api.example.com.", 0.5, "10.0.0.2")
    samples.add(found, 80.0, ZONES, is_namespace)
    assert [storm.share for storm in samples.storms()] == [0.1]
    samples.add(found, 20.0, ZONES, is_namespace)
    assert not [*samples.storms()]


def test_types_are_told_apart() -> None:
    samples = Samples()
    for qtype in (A, A, AAAA):
        packet = query_for(labels_of("web."), qtype).packet
        sample = sample_of(packet, "10.0.0.1", bytes((0, 0, 0x84, 0)))
        assert sample
        samples.add([sample], 1.0, ZONES, is_namespace)
    assert [(entry.value, entry.weight) for entry in samples.names.most(2)] == [
        (("web.", "A", "NOERROR"), 2),
        (("web.", "AAAA", "NOERROR"), 1),
    ]
