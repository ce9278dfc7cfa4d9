"""What `Zones` remembers of Services goes with what it was made of, and with nothing else."""

from typing import Any

import pytest
from cluster_objects import endpoint_slice, service, state_of
from dns_chain import FakeWorld

from kdns.cluster.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Meta,
    Namespace,
    Node,
    NodeMeta,
    Object,
    Service,
    ServicePort,
    SliceLabels,
    SliceMeta,
)
from kdns.dns.names import labels_of
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.plugin import Kubernetes
from kdns.plugins.sources.kubernetes.reverse import is_above_an_address
from kdns.plugins.sources.kubernetes.service import ServiceNames, hosts_of, weighted
from kdns.plugins.sources.kubernetes.zone import MAX_READ_ENDPOINTS

PORTS = (ServicePort(80, "p"),)
REVERSE = labels_of("96.10.in-addr.arpa.")


@pytest.mark.parametrize(
    ("change", "read", "ranges"),
    [
        (service("a", "10.96.0.9", ports=PORTS), ["a"], 1),
        (endpoint_slice("a-1", "a", "10.1.0.1"), ["a"], 1),
        (service("b", "None", ports=PORTS), ["b"], 1),
        (endpoint_slice("c-1", "c", "10.1.0.1"), [], 1),
        (Namespace(Meta("other")), [], 1),
        (Node(NodeMeta("n")), [], 0),
    ],
)
def test_a_change_makes_anew_what_it_touches(
    change: Object, read: list[str], ranges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of Services with many endpoints are kept."""
    made: list[str] = []
    looked: list[object] = []

    def names(of: Service, *more: Any) -> Any:
        made.append(of.metadata.name)
        return ServiceNames(of, *more)

    def look(*given: Any) -> bool:
        looked.append(given)
        return is_above_an_address(*given)

    monkeypatch.setattr("kdns.plugins.sources.kubernetes.zone.ServiceNames", names)
    monkeypatch.setattr("kdns.plugins.sources.kubernetes.zone.is_above_an_address", look)
    many = [f"10.1.1.{number}" for number in range(MAX_READ_ENDPOINTS + 1)]
    services = [service(name, address, ports=PORTS) for name, address in (("a", "10.96.0.1"), ("b", "10.96.0.2"))]
    state = state_of(*services, *(endpoint_slice(f"{name}-1", name, *many) for name in "ab"))
    zones = Kubernetes(state, Options(zones=("cluster.local.", "in-addr.arpa.")), FakeWorld())

    def ask() -> tuple[list[str], int]:
        made.clear()
        looked.clear()
        for name in "ab":
            zones.zones.lookup(labels_of(f"{name}.shop.svc.cluster.local."), 33)
        zones.zones.lookup(REVERSE, 1)
        return list(made), len(looked)

    assert ask() == (["a", "b"], 1)
    assert ask() == ([], 0)
    changed = state.upsert(change)
    assert changed
    zones.changed([changed], 1.0)
    assert ask() == (read, ranges)


@pytest.mark.parametrize("slices", [7, 50])
def test_a_change_reads_the_slice_that_changed(slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of a Service of few endpoints are read for each question."""
    read: list[str] = []

    def hosts(endpoint_slice: EndpointSlice, *more: Any) -> Any:
        read.append(endpoint_slice.metadata.name)
        return hosts_of(endpoint_slice, *more)

    def part(number: int, last: int) -> EndpointSlice:
        endpoints = tuple(Endpoint((f"10.1.{number}.{host}",), hostname=f"a-{number}-{host}") for host in range(last))
        meta = SliceMeta(f"a-{number}", "shop", SliceLabels("a"))
        return EndpointSlice(meta, "IPv4", endpoints, (EndpointPort("p", 80),))

    monkeypatch.setattr("kdns.plugins.sources.kubernetes.service.hosts_of", hosts)
    state = state_of(service("a", "None", ports=PORTS), *(part(number, 10) for number in range(slices)))
    zones = Kubernetes(state, Options(), FakeWorld())
    for last in (10, 11, 9):
        change = state.upsert(part(1, last))
        if change:
            read.clear()
            zones.changed([change], 1.0)
        count = 10 * (slices - 1) + last
        for name, qtype, records in (("", 33, count), ("_p._tcp.", 33, count), ("a-1-0.", 1, 1), ("", 1, count)):
            result = zones.zones.lookup(labels_of(f"{name}a.shop.svc.cluster.local."), qtype)
            assert result
            assert [len(rrset.rdata) for rrset in result.answer] == [records]
        assert len(read) == (1 if change else slices)
    zones.zones.forget({("service", "shop", f"gone-{number}") for number in range(1000)})
    assert read == ["a-1"]


@pytest.mark.parametrize(("count", "weight"), [(1, 100), (3, 33), (100, 1), (101, 1)])
def test_equal_weights_are_never_zero(count: int, weight: int) -> None:
    """Clients all but ignore a target of weight 0 beside others (RFC 2782)."""
    weights = weighted([("web.shop.svc.cluster.local.", port) for port in range(count)])
    assert [(srv.weight, srv.port) for srv in weights] == [(weight, port) for port in range(count)]
