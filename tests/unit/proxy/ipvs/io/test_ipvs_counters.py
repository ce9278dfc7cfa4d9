"""The counters of mode ipvs: what virtual servers count, by Service port."""

import pytest
from small_cluster import endpoints, planned, service

from kdns.netlink.ipvs import Destination, ServerOptions, VirtualServer, VirtualServerKey
from kdns.proxy.ipvs.draining import Draining
from kdns.proxy.ipvs.io import counters
from kdns.proxy.ipvs.io.counters import IpvsCounters
from kdns.proxy.modes import MODES
from kdns.runtime.metrics import MetricFamilies


async def test_connections_by_service_port(monkeypatch: pytest.MonkeyPatch) -> None:
    of = planned(service(1, endpoints(1, "p1")), mode=MODES["ipvs"].semantics)
    counts: dict[VirtualServerKey, int] = {
        VirtualServerKey("10.96.0.1", 80, "TCP"): 3,
        VirtualServerKey("198.51.100.1", 80, "TCP"): 4,
        VirtualServerKey("192.0.2.1", 30001, "TCP"): 5,
        VirtualServerKey("192.0.2.9", 30001, "TCP"): 6,
        VirtualServerKey("10.96.0.1", 80, "UDP"): 7,
        VirtualServerKey("fd00:96::1", 80, "TCP"): 8,
        VirtualServerKey("10.99.0.1", 80, "TCP"): 9,
    }
    monkeypatch.setattr(counters, "_scheduled", lambda: dict(counts))
    draining = Draining()
    server = VirtualServer(ServerOptions("rr"), {("10.1.0.2", 8080): Destination()})
    draining.change([(VirtualServerKey("10.96.0.1", 80, "TCP"), server, server._replace(destinations={}))], 0.0)
    made, metrics = IpvsCounters(draining), MetricFamilies()
    made.register(metrics)
    await made.read(of)
    assert samples(metrics, "kdns_service_connections") == {
        ("shop", "s1", "tcp", "TCP", "IPv4"): 18,
        ("shop", "s1", "udp", "UDP", "IPv4"): 7,
        ("shop", "s1", "tcp", "TCP", "IPv6"): 8,
    }
    assert samples(metrics, "kdns_ipvs_virtual_servers") == {(): 7}
    assert samples(metrics, "kdns_ipvs_draining_destinations") == {(): 1}
    counts[VirtualServerKey("10.96.0.1", 80, "TCP")] = 1  # deleted and created
    await made.read(of)
    assert samples(metrics, "kdns_service_connections")["shop", "s1", "tcp", "TCP", "IPv4"] == 19

    def refuse() -> dict[VirtualServerKey, int]:
        raise OSError("no IPVS")

    monkeypatch.setattr(counters, "_scheduled", refuse)
    await made.read(of)
    assert samples(metrics, "kdns_service_connections")["shop", "s1", "tcp", "TCP", "IPv4"] == 19


def samples(metrics: MetricFamilies, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if family.name == name
    }
