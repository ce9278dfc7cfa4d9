"""/metrics of a node's dataplane: kube-proxy's names where kube-proxy has the figure, `kdns_` for the rest.

Differs: kube-proxy has its sync metrics once for each family (label ip_family). kdns applies both in one transaction,
and says the same of both. kubernetes_build_info is not there: alerts compare it over all of a cluster's components, and
kdns has a version of its own. Neither is anything that only Go has (go_…).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from heapq import nlargest
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector

import kdns
from kdns.aio import nftread
from kdns.aio.admin import Handler, exposition, scraped
from kdns.aio.conntrack import FlowStats
from kdns.aio.dataplane import Dataplane
from kdns.aio.follow import FollowStats
from kdns.aio.nodehealth import NodeHealth
from kdns.aio.syncstats import Changes
from kdns.aio.zpages import HealthChecks
from kdns.errors import ApplyError
from kdns.metrics import Distribution, Gauges, Histogram, Sample
from kdns.proxy.config import FAMILIES, Family
from kdns.proxy.plan import FrontKey, Plan, PortName, Verdict
from kdns.proxy.relaying import PortCounters
from kdns.proxy.tally import Tally

MOST_SERVICES: Final = 5000
"""Service ports that have counters of their own: those with the most connections."""
MAPS: Final = ("service-ips", "service-nodeports")
REFUSALS: Final = ("no-endpoint-services", "no-endpoint-nodeports")

_PREFIX: Final = "kubeproxy_"
_SYNC: Final = f"{_PREFIX}sync_proxy_rules_"
_BY_FAMILY: Final = ("ip_family",)
_BY_SERVICE: Final = ("namespace", "service", "port", "protocol", "ip_family")


@dataclass(slots=True)
class Readings:
    """What the elements of some maps have counted, by Service port, as of the last scrape."""

    maps: tuple[str, ...]
    tally: Tally = field(default_factory=Tally)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    samples: list[Sample] = field(default_factory=list)

    async def read(self, plan: Plan) -> None:
        """Ask the kernel."""
        async with self.lock:
            for family in FAMILIES:
                for name in self.maps:
                    with suppress(ApplyError):
                        elements = await nftread.counted(family, name)
                        counts = {FrontKey(*each[:3]): each.packets for each in elements if each.packets}
                        self.tally.read(plan.of(family), name, counts)
            most = nlargest(MOST_SERVICES, self.tally.totals(plan).items(), key=lambda row: row[1])
            self.samples = [Sample(_labels(*counted), count) for counted, count in most]


@dataclass(slots=True)
class Watched:
    """Everything that has figures. `relays` are the counters of mode userspace."""

    dataplane: Dataplane
    health: NodeHealth
    follow: FollowStats
    flows: FlowStats
    relays: Callable[[], Mapping[PortName, PortCounters]] = dict
    connections: Readings = field(default_factory=lambda: Readings(MAPS))
    refused: Readings = field(default_factory=lambda: Readings(REFUSALS))


def metrics(watched: Watched) -> Handler:
    """The handler of /metrics. The kernel's counters are read for each scrape."""
    registry = CollectorRegistry()
    registry.register(_rows(watched))
    ProcessCollector(registry=registry)

    async def answer(request: web.Request) -> web.Response:
        for readings in (watched.connections, watched.refused):
            if watched.dataplane.plan:
                await readings.read(watched.dataplane.plan)
        return scraped(registry, request.headers.get("Accept", ""))

    return answer


def slis(checks: HealthChecks) -> Handler:
    """The handler of /metrics/slis: what came of the checks of /healthz, as k8s.io/component-base tells it."""
    rows, registry = Gauges(), CollectorRegistry()
    registry.register(rows)
    text = "Whether a health check passed the last time."  # the one that there is cannot fail
    rows.add(
        "kubernetes_healthcheck", text, ("name", "type"), lambda: [Sample((n, of), 1) for n, _, of in checks.results]
    )
    text, labels = "Results of health checks.", ("name", "status", "type")
    rows.add(
        "kubernetes_healthchecks", text, labels, lambda: [Sample(*row) for row in checks.results.items()], counter=True
    )
    return exposition(registry)


def _labels(name: PortName, family: Family) -> tuple[str, ...]:
    return name.namespace, name.service, name.port, name.protocol, family


def _rows(watched: Watched) -> Gauges:
    rows = Gauges()
    _add_syncs(rows, watched.dataplane)
    _add_health(rows, watched.health)
    _add_flows(rows, watched.flows)
    _add_own(rows, watched)
    return rows


def _each(value: Callable[[], float]) -> Callable[[], Iterable[Sample]]:
    """The same of both families."""
    return lambda: [Sample((family,), value()) for family in FAMILIES]


def _both(histogram: Histogram) -> Callable[[], Iterable[Distribution]]:
    return lambda: [((family,), histogram) for family in FAMILIES]


def _one(value: Callable[[], float]) -> Callable[[], Iterable[Sample]]:
    return lambda: [Sample((), value())]


def _add_syncs(rows: Gauges, dataplane: Dataplane) -> None:
    stats = dataplane.stats
    for name, text, histogram in (
        (f"{_SYNC}duration_seconds", "Applying changes.", stats.runs),
        (f"{_PREFIX}sync_full_proxy_rules_duration_seconds", "Applying everything.", stats.full),
        (f"{_PREFIX}sync_partial_proxy_rules_duration_seconds", "Applying what changed.", stats.partial),
        (f"{_PREFIX}network_programming_duration_seconds", "From change to rules.", stats.programming),
    ):
        rows.add_histogram(name, text, _BY_FAMILY, _both(histogram))
    by_family: tuple[tuple[str, str, Callable[[], float], bool], ...] = (
        (f"{_SYNC}last_timestamp_seconds", "When rules were applied last.", lambda: stats.last_sync_s, False),
        (f"{_SYNC}last_queued_timestamp_seconds", "When a change came last.", lambda: stats.last_queued_s, False),
        (f"{_SYNC}nftables_sync_failures", "Rules not applied.", lambda: stats.failures, True),
        (f"{_SYNC}nftables_cleanup_failures", "Unused rules not removed.", lambda: stats.tidy_failures, True),
    )
    for name, text, value, is_counter in by_family:
        rows.add(name, text, _BY_FAMILY, _each(value), counter=is_counter)
    for kind, changes in (("service", stats.services), ("endpoint", stats.endpoints)):
        pending, total = f"{_SYNC}{kind}_changes_pending", f"{_SYNC}{kind}_changes"
        rows.add(pending, "Changes not applied yet.", (), partial(_changes, changes, "pending"))
        rows.add(total, "Changes.", (), partial(_changes, changes, "total"), counter=True)
    labels = (*_BY_FAMILY, "traffic_policy")
    text = "Service ports with policy Local and no endpoint here."
    rows.add(f"{_SYNC}no_local_endpoints_total", text, labels, lambda: _no_local_endpoints(dataplane))
    rows.add("kdns_proxy_rules_changed_by_others", "Times.", (), _one(lambda: stats.distrusts), counter=True)
    text = "Services that the kernel refuses, which are left out."
    rows.add("kdns_proxy_services_left_out", text, (), _one(lambda: len(dataplane.refused)))


def _changes(changes: Changes, what: str) -> Iterator[Sample]:
    yield Sample((), float(getattr(changes, what)))


def _no_local_endpoints(dataplane: Dataplane) -> Iterator[Sample]:
    for family in FAMILIES if dataplane.plan else ():
        ports = dataplane.plan.of(family).ports.values() if dataplane.plan else ()
        internal = sum(port.internal.verdict is Verdict.DROP for port in ports)
        external = sum(port.external.verdict is Verdict.DROP for port in ports)
        yield Sample((family, "internal"), internal)
        yield Sample((family, "external"), external)


def _add_health(rows: Gauges, health: NodeHealth) -> None:
    def by_code(counts: Counter[int]) -> Callable[[], Iterable[Sample]]:
        return lambda: [Sample((str(code),), count) for code, count in counts.items()]

    rows.add(f"{_PREFIX}proxy_healthz", "Answers of /healthz.", ("code",), by_code(health.healthz), counter=True)
    rows.add(f"{_PREFIX}proxy_livez", "Answers of /livez.", ("code",), by_code(health.livez), counter=True)


def _add_flows(rows: Gauges, flows: FlowStats) -> None:
    name = f"{_PREFIX}conntrack_reconciler_"
    rows.add_histogram(
        f"{name}sync_duration_seconds",
        "Looking for stale UDP flows.",
        _BY_FAMILY,
        lambda: [((family,), histogram) for family, histogram in flows.durations.items()],
    )
    rows.add(
        f"{name}deleted_entries",
        "Stale UDP flows deleted.",
        _BY_FAMILY,
        lambda: [Sample((family,), count) for family, count in flows.deleted.items()],
        counter=True,
    )


def _add_own(rows: Gauges, watched: Watched) -> None:
    rows.add("kdns_build_info", "Version.", ("version",), lambda: [Sample((kdns.__version__,), 1)])
    text = "Connections to a Service port; UDP: clients."
    rows.add("kdns_service_connections", text, _BY_SERVICE, lambda: watched.connections.samples, counter=True)
    text = "Packets to a Service port that were refused or dropped for want of endpoints."
    rows.add("kdns_service_refused_packets", text, _BY_SERVICE, lambda: watched.refused.samples, counter=True)
    by_port = _BY_SERVICE[:-1]
    for what, text, is_counter in (
        ("active", "Relayed connections now.", False),
        ("retries", "Attempts to reach another endpoint.", True),
        ("failures", "Connections for which no endpoint answered.", True),
        ("received_bytes", "Relayed from clients.", True),
        ("sent_bytes", "Relayed to clients.", True),
    ):
        rows.add(f"kdns_relay_{what}", text, by_port, partial(_relayed, watched, what), counter=is_counter)
    rows.add("kdns_watch_connected", "Whether changes arrive.", ("kind",), lambda: _followed(watched, "connected"))
    rows.add("kdns_watch_events", "Changes seen.", ("kind",), lambda: _followed(watched, "events"), counter=True)
    rows.add("kdns_watch_lists", "Full lists.", ("kind",), lambda: _followed(watched, "lists"), counter=True)
    rows.add("kdns_watch_staleness_seconds", "Since the API last spoke.", ("kind",), lambda: _staleness(watched))
    labels = ("code", "method", "host")
    rows.add("rest_client_requests", "Requests to the API.", labels, lambda: _requests(watched), counter=True)
    rest, by_verb = watched.follow.rest, ("verb", "host")
    text = "From a request to the API to the beginning of its answer."
    rows.add_histogram("rest_client_request_duration_seconds", text, by_verb, rest.durations.items)
    text = "How long requests to the API waited for their turn."
    rows.add_histogram("rest_client_rate_limiter_duration_seconds", text, by_verb, rest.throttled.items)


def _relayed(watched: Watched, what: str) -> Iterator[Sample]:
    for name, counters in watched.relays().items():
        yield Sample((name.namespace, name.service, name.port, name.protocol), float(getattr(counters, what)))


def _followed(watched: Watched, what: str) -> Iterator[Sample]:
    for kind, stats in watched.follow.kinds.items():
        yield Sample((kind.__name__,), float(getattr(stats, what)))


def _staleness(watched: Watched) -> Iterator[Sample]:
    for kind, stats in watched.follow.kinds.items():
        if stats.last_contact_s is not None:
            yield Sample((kind.__name__,), time.monotonic() - stats.last_contact_s)


def _requests(watched: Watched) -> Iterator[Sample]:
    return (Sample(labels, count) for labels, count in watched.follow.rest.requests.items())
