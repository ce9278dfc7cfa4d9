"""/metrics of the REST API: cluster IPs and node ports, under kube-apiserver's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Final

from prometheus_client import CollectorRegistry

from kdns.controlplane.kinds.service.allocation import ServiceAllocator
from kdns.controlplane.kinds.service.allocator import Addresses, AllocatorMetrics, Range
from kdns.runtime.metrics import COUNTER, HISTOGRAM, Histogram, Metric, MetricFamilies, Sample

BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_IPS, _PORTS = "kube_apiserver_clusterip_allocator", "kube_apiserver_nodeport_allocator"


class AllocationMetrics:
    """Pass `metrics` to Registry; then `registry` exports the metrics of its allocator."""

    def __init__(self) -> None:
        self.metrics = AllocatorMetrics(perf_counter, self._took)
        self._durations: dict[str, Histogram] = {}

    def _took(self, cidr: str, took_s: float) -> None:
        histogram = self._durations.get(cidr)
        if histogram is None:
            histogram = self._durations[cidr] = Histogram(BUCKETS_S)
        histogram.add(took_s)

    def _by_cidr(self) -> Iterable[tuple[tuple[str, ...], Histogram]]:
        return [((cidr,), histogram) for cidr, histogram in self._durations.items()]

    def registry(self, numbers: ServiceAllocator) -> CollectorRegistry:
        """Returns all families, read at the scrape."""
        metrics, families = self.metrics, MetricFamilies()
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
        text = "Time to find a cluster IP."
        families.add(Metric(f"{_IPS}_allocation_duration_seconds", text, ("cidr",), self._by_cidr, HISTOGRAM))
        registry = CollectorRegistry()
        registry.register(families)
        return registry


def _by_range(families: Iterable[Addresses], value: Callable[[Range], int]) -> Callable[[], Iterable[Sample]]:
    return lambda: [
        Sample((str(network),), value(each)) for family in families for network, each in family.ranges.items()
    ]


def _counted(counts: Counter[tuple[str, ...]]) -> Callable[[], Iterable[Sample]]:
    return lambda: [Sample(labels, count) for labels, count in counts.items()]
