"""Metrics of upstreams: CoreDNS's counters of cached connections, and kdns's of exchanges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdns.runtime.metrics import COUNTER, Metric, MetricFamilies, Sample
from kdns.upstream.io.upstreams import Upstreams

PROXY_NAME: Final = "forward"
"""CoreDNS's label for the directive that uses the connections."""


def gauges(upstreams: Upstreams) -> MetricFamilies:
    rows = MetricFamilies()
    labels = ("proxy_name", "to", "proto")
    name, text = "coredns_proxy_conn_cache_hits", "Queries sent over an existing socket or connection."
    rows.add(Metric(name, text, labels, lambda: _connections(upstreams, is_reused=True), COUNTER))
    name, text = "coredns_proxy_conn_cache_misses", "Queries for which a socket or connection was opened."
    rows.add(Metric(name, text, labels, lambda: _connections(upstreams, is_reused=False), COUNTER))
    name, text = "kdns_upstream_ignored_messages", "Messages of upstreams that match no query."
    rows.add(Metric(name, text, ("to", "proto", "reason"), lambda: _ignored(upstreams), COUNTER))
    name, text = "kdns_upstream_exchanges", "Queries that wait for upstreams."
    rows.add(Metric(name, text, (), lambda: [Sample((), len(upstreams.exchanges or ()))]))
    name, text = "kdns_upstream_rejected_exchanges", "Queries that failed because too many waited for upstreams."
    rows.add(
        Metric(
            name, text, (), lambda: [Sample((), upstreams.exchanges.rejected if upstreams.exchanges else 0)], COUNTER
        )
    )
    return rows


def _connections(upstreams: Upstreams, *, is_reused: bool) -> Iterator[Sample]:
    for label, counts in upstreams.counts.items():
        yield Sample((PROXY_NAME, *label), counts.reused if is_reused else counts.opened)


def _ignored(upstreams: Upstreams) -> Iterator[Sample]:
    for label, counts in upstreams.counts.items():
        for reason, times in counts.ignored.items():
            yield Sample((*label, reason), times)
