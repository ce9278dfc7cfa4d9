"""What several processes expose, as the metrics of one."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from kdns.runtime.metric_sums import GAUGES, MetricSums

ALL_METRICS = Path(__file__).parents[3] / "docs/reference/all-metrics.md"
SAME_IN_ALL = {
    "coredns_build_info",
    "coredns_hosts_entries",
    "coredns_hosts_reload_timestamp_seconds",
    "coredns_plugin_enabled",
    "coredns_reload_version_info",
    "kdns_dns_is_compiled",
    "kdns_dns_workers",
    "kdns_loop_upstreams",
    "kdns_objects",
    "kdns_snapshot_age_seconds",
    "kdns_snapshot_served",
    "kdns_watch_dropped_objects",
    "kdns_watch_staleness_seconds",
    "process_max_fds",
    "process_start_time_seconds",
    "python_info",
}
"""Gauges that differ between processes for a moment at most: the largest value counts."""


def exposed(requests: int, fast: int, rss: int, *, connected: int = 1, version: str = "a") -> str:
    return f"""\
# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{{zone="."}} {requests}
# TYPE took_seconds histogram
took_seconds_bucket{{le="0.1"}} {fast}
took_seconds_bucket{{le="+Inf"}} {requests}
took_seconds_sum 1.5
took_seconds_count {requests}
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes {rss}
# TYPE kdns_watch_connected gauge
kdns_watch_connected{{kind="Service"}} {connected}
# TYPE kdns_objects gauge
kdns_objects{{kind="Service"}} 7
# TYPE coredns_reload_version_info gauge
coredns_reload_version_info{{hash="sha512",value="{version}"}} 1
"""


def lines(running: list[str], ended: list[str]) -> list[str]:
    registry, sums = CollectorRegistry(), MetricSums()
    for exposition in ended:
        sums.add(exposition, has_ended=True)
    for exposition in running:
        sums.add(exposition)
    registry.register(sums)
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_each_gauge_of_serve_is_combined_on_purpose() -> None:
    """A new gauge that each process has a part of belongs into GAUGES, else the sum would be the largest part."""
    serve = ALL_METRICS.read_text(encoding="utf-8").partition("## Of kdns serve")[2].partition("\n## ")[0]
    gauges = set(re.findall(r"- `(\w+)`: .*\n  Gauge", serve))
    assert gauges == GAUGES.keys() | SAME_IN_ALL
    assert not GAUGES.keys() & SAME_IN_ALL


def test_counts_add_up_and_facts_stay() -> None:
    assert lines([exposed(10, 4, 100), exposed(5, 1, 50, connected=0)], []) == [
        'requests_total{zone="."} 15.0',
        'took_seconds_bucket{le="0.1"} 5.0',
        'took_seconds_bucket{le="+Inf"} 15.0',
        "took_seconds_sum 3.0",
        "took_seconds_count 15.0",
        "process_resident_memory_bytes 150.0",
        'kdns_watch_connected{kind="Service"} 0.0',
        'kdns_objects{kind="Service"} 7.0',
        'coredns_reload_version_info{hash="sha512",value="a"} 1.0',
    ]


def test_an_ended_process_keeps_its_counts_and_nothing_else() -> None:
    """Else a counter would fall, which means a restart to Prometheus."""
    assert lines([exposed(10, 4, 100)], [exposed(5, 1, 50, connected=0, version="old")]) == [
        'requests_total{zone="."} 15.0',
        'took_seconds_bucket{le="0.1"} 5.0',
        'took_seconds_bucket{le="+Inf"} 15.0',
        "took_seconds_sum 3.0",
        "took_seconds_count 15.0",
        "process_resident_memory_bytes 100.0",
        'kdns_watch_connected{kind="Service"} 1.0',
        'kdns_objects{kind="Service"} 7.0',
        'coredns_reload_version_info{hash="sha512",value="a"} 1.0',
    ]


def test_labels_of_one_process_alone_stay() -> None:
    more = 'requests_total{zone="b\\"c"} 3\n'
    found = lines([exposed(1, 1, 1), exposed(1, 1, 1).replace("# TYPE took", f"{more}# TYPE took")], [])
    assert found[:2] == ['requests_total{zone="."} 2.0', 'requests_total{zone="b\\"c"} 3.0']
