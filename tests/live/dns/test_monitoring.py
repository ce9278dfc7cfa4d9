"""deploy/monitoring: each metric of an alert or a panel is one that kdns exports, with the labels that they use."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from dns_client import Udp, packet
from dns_live import api_of, cluster, page, port_of, serving
from fake_api import endpoint_slice, until
from prometheus_client.parser import text_string_to_metric_families
from real_servers import resolver

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
EXPRESSIONS = {
    **{rule["alert"]: rule["expr"] for rule in RULES},
    **{
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    },
}
COREDNS_PANELS: dict[str, set[str]] = {
    "coredns_dns_requests_total": {"instance", "proto", "type", "zone", "server", "view", "family"},
    "coredns_dns_do_requests_total": {"server", "zone"},
    "coredns_dns_request_size_bytes_bucket": {"proto", "le", "server", "zone"},
    "coredns_dns_response_size_bytes_bucket": {"proto", "le", "server", "zone"},
    "coredns_dns_responses_total": {"rcode", "plugin", "server", "zone"},
    "coredns_dns_request_duration_seconds_bucket": {"le", "server", "zone"},
    "coredns_dns_request_duration_seconds_count": {"server", "zone"},
    "coredns_cache_entries": {"type", "server", "zones"},
    "coredns_cache_hits_total": {"type", "server", "zones"},
    "coredns_cache_misses_total": {"server", "zones"},
    "coredns_cache_requests_total": {"server", "zones"},
    "coredns_proxy_request_duration_seconds_bucket": {"proxy_name", "to", "rcode", "le"},
    "coredns_proxy_request_duration_seconds_count": {"proxy_name", "to", "rcode"},
    "coredns_proxy_healthcheck_failures_total": {"proxy_name", "to"},
    "coredns_proxy_conn_cache_hits_total": {"proxy_name", "to", "proto"},
    "coredns_forward_max_concurrent_rejects_total": set(),
    "coredns_forward_healthcheck_broken_total": set(),
    "coredns_kubernetes_dns_programming_duration_seconds_bucket": {"service_kind", "le"},
    "coredns_health_request_duration_seconds_bucket": {"le"},
    "coredns_health_request_failures_total": set(),
    "coredns_panics_total": set(),
    "coredns_plugin_enabled": {"name", "server", "zone", "view"},
    "coredns_reload_failed_total": set(),
    "coredns_build_info": {"version", "goversion", "revision"},
    "process_cpu_seconds_total": set(),
    "process_resident_memory_bytes": set(),
    "process_open_fds": set(),
    "process_max_fds": set(),
    "process_start_time_seconds": set(),
}
"""What public dashboards and alerts for CoreDNS read: 14981 and 15762 of grafana.com, and the mixin of Prometheus."""
EMPTY_PANELS = {
    "go_goroutines",
    "go_memstats_alloc_bytes",
    "coredns_forward_requests_total",
    "coredns_forward_responses_total",
    "coredns_forward_request_duration_seconds_bucket",
}
"""What they read too and CoreDNS alone has, or had before 1.11; docs/tasks/metrics.md says what to read instead."""
METRIC = re.compile(r"\b((?:coredns|kdns|kubeproxy|process)_\w+)(?:\{([^}]*)\})?")
MORE = """
forward . {upstream}
cache 30
reload
"""
NAMES = ("s0.default.svc.cluster.local", "www.outside.example")


def test_the_alerts_say_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}


async def exposition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The metrics of a server that has answered, asked an upstream, and followed a change."""
    options, changed = f"snapshot {tmp_path}/cluster", endpoint_slice("s0", "10.244.9.9")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    changed["metadata"]["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": now}
    with resolver(tmp_path, "www.outside.example. 60 IN A 198.51.100.7") as upstream:
        more = MORE.format(upstream=upstream)
        async with api_of(cluster()) as api, serving(api.url, monkeypatch, more=more, options=options) as server:
            with Udp(port_of(server)) as udp:
                for name in NAMES:
                    await udp.ask(packet(name))
                await udp.ask(packet(NAMES[0], payload_bytes=1232, do=True))
            api.cluster.put("endpointslices", changed)
            await until(lambda: bool(server.clusters[0].programming))
            return (await page(server, "/metrics"))[1]


def labels_of(text: str) -> dict[str, set[str]]:
    """The labels of each metric of an exposition."""
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        labels.setdefault(family.name if family.type != "counter" else f"{family.name}_total", set())
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


async def test_panels_for_coredns_are_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = labels_of(await exposition(tmp_path, monkeypatch))
    assert COREDNS_PANELS.keys() - labels.keys() == set()
    of_prometheus = {"instance", "job"}
    missing = {name: wanted - labels[name] - of_prometheus for name, wanted in COREDNS_PANELS.items()}
    assert {name: those for name, those in missing.items() if those and labels[name]} == {}
    assert EMPTY_PANELS & labels.keys() == set()
    page = (MONITORING.parents[1] / "docs" / "tasks" / "metrics.md").read_text()
    told = {
        name
        for name in EMPTY_PANELS
        if name.removesuffix("_bucket") in page or (name[:3] == "go_" and "`go_…`" in page)
    }
    assert told == EMPTY_PANELS


async def test_the_metrics_of_alerts_and_panels_are_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = labels_of(await exposition(tmp_path, monkeypatch))
    for what, expression in EXPRESSIONS.items():
        grouped = re.findall(r"by \(([^)]*)\)", expression)
        for name, selected in METRIC.findall(expression):
            if name.startswith(("kubeproxy_", "kdns_proxy_")):
                continue  # tests/netns has a proxy at work
            assert name in labels, f"{what}: {name}"
            wanted = {*re.findall(r"(\w+)=", selected), *(w for words in grouped for w in re.findall(r"\w+", words))}
            assert wanted - {"instance", "job"} <= labels[name] | ({"le"} if name.endswith("_bucket") else set()), name
