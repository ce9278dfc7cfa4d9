"""deploy/monitoring: each metric of an alert is one that kdns exports, with the labels that the alert uses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from dns_client import Udp, packet
from dns_live import api_of, cluster, page, port_of, serving
from prometheus_client.parser import text_string_to_metric_families

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]["groups"]
    for rule in group["rules"]
]
METRIC = re.compile(r"\b((?:coredns|kdns|kubeproxy)_\w+)(?:\{([^}]*)\})?")
MORE = """
forward . 127.0.0.1:9
cache 30
reload
"""


def test_the_alerts_say_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}


async def test_the_metrics_of_the_alerts_are_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = f"snapshot {tmp_path}/cluster"
    async with api_of(cluster()) as api, serving(api.url, monkeypatch, more=MORE, options=options) as server:
        with Udp(port_of(server)) as udp:
            await udp.ask(packet("s0.default.svc.cluster.local"))
        _, text = await page(server, "/metrics")
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        labels.setdefault(family.name if family.type != "counter" else f"{family.name}_total", set())
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    for rule in RULES:
        grouped = re.findall(r"by \(([^)]*)\)", rule["expr"])
        for name, selected in METRIC.findall(rule["expr"]):
            if name.startswith(("kubeproxy_", "kdns_proxy_")):
                continue  # tests/netns has a proxy at work
            assert name in labels, f"{rule['alert']}: {name}"
            wanted = {*re.findall(r"(\w+)=", selected), *(w for words in grouped for w in re.findall(r"\w+", words))}
            assert wanted - {"instance"} <= labels[name] | ({"le"} if name.endswith("_bucket") else set()), name
