"""/metrics of the REST API: cluster IPs and node ports, under kube-apiserver's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry

from kdns.controlplane.kinds.service.allocation import ServiceAllocator
from kdns.controlplane.kinds.service.allocator import Addresses, Range
from kdns.runtime.metrics import COUNTER, Metric, MetricFamilies, Sample

_IPS, _PORTS = "kube_apiserver_clusterip_allocator", "kube_apiserver_nodeport_allocator"


def allocation_metrics(numbers: ServiceAllocator) -> CollectorRegistry:
    """Values are read at the scrape."""
    metrics, families = numbers.metrics, MetricFamilies()
    ips, ports = numbers.addresses.values(), numbers.ports
    gauges: dict[str, tuple[str, tuple[str, ...], Callable[[], Iterable[Sample]]]] = {
        f"{_IPS}_allocated_ips": ("Cluster IPs in use.", ("cidr",), _by_range(ips, lambda pool: pool.used)),
        f"{_IPS}_available_ips": (
            "Free cluster IPs.",
            ("cidr",),
            _by_range(ips, lambda pool: pool.size - pool.used),
        ),
        f"{_PORTS}_allocated_ports": ("Node ports in use.", (), lambda: [Sample((), ports.pool.used)]),
        f"{_PORTS}_available_ports": (
            "Free node ports.",
            (),
            lambda: [Sample((), ports.pool.size - ports.pool.used)],
        ),
    }
    counters: dict[str, tuple[str, tuple[str, ...], Counter[tuple[str, ...]]]] = {
        f"{_IPS}_allocation_total": ("Cluster IPs allocated.", ("cidr", "scope"), metrics.addresses),
        f"{_IPS}_allocation_errors_total": ("Cluster IPs refused.", ("cidr", "scope"), metrics.address_errors),
        f"{_PORTS}_allocation_total": ("Node ports allocated.", ("scope",), metrics.ports),
        f"{_PORTS}_allocation_errors_total": ("Node ports refused.", ("scope",), metrics.port_errors),
    }
    for name, gauge in gauges.items():
        families.add(Metric(name, *gauge))
    for name, (text, labels, counts) in counters.items():
        families.add(Metric(name, text, labels, _counted(counts), COUNTER))
    registry = CollectorRegistry()
    registry.register(families)
    return registry


def _by_range(families: Iterable[Addresses], value: Callable[[Range], int]) -> Callable[[], Iterable[Sample]]:
    return lambda: [
        Sample((str(network),), value(numbers)) for family in families for network, numbers in family.ranges.items()
    ]


def _counted(counts: Counter[tuple[str, ...]]) -> Callable[[], Iterable[Sample]]:
    return lambda: [Sample(labels, count) for labels, count in counts.items()]
