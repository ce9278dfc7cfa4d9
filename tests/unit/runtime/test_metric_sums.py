"""What several processes expose, as the metrics of one."""

from prometheus_client import CollectorRegistry, generate_latest

from kdns.runtime.metric_sums import MetricSums


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
