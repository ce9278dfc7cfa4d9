"""deploy/monitoring: each metric of an alert or a panel is one that kdns exports, with the labels that they use."""

from __future__ import annotations

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
    **{f"{panel['title']} {each['refId']}": each["expr"] for panel in DASHBOARD["panels"] for each in panel["targets"]},
}
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
            api.cluster.put("endpointslices", changed)
            await until(lambda: bool(server.clusters[0].programming))
            return (await page(server, "/metrics"))[1]


async def test_the_metrics_of_alerts_and_panels_are_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = await exposition(tmp_path, monkeypatch)
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        labels.setdefault(family.name if family.type != "counter" else f"{family.name}_total", set())
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    for what, expression in EXPRESSIONS.items():
        grouped = re.findall(r"by \(([^)]*)\)", expression)
        for name, selected in METRIC.findall(expression):
            if name.startswith(("kubeproxy_", "kdns_proxy_")):
                continue  # tests/netns has a proxy at work
            assert name in labels, f"{what}: {name}"
            wanted = {*re.findall(r"(\w+)=", selected), *(w for words in grouped for w in re.findall(r"\w+", words))}
            assert wanted - {"instance", "job"} <= labels[name] | ({"le"} if name.endswith("_bucket") else set()), name
