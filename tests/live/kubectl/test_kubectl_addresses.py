"""ServiceCIDRs and IPAddresses as people use them: kubectl against `kdns up`, restarts with other flags included."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kdns_process import Running, kdns_up

MORE = "10.97.0.0/29"


def cidr(name: str, *cidrs: str) -> str:
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR"}
    return json.dumps({**kind, "metadata": {"name": name}, "spec": {"cidrs": cidrs}})


def addresses(running: Running) -> dict[str, str]:
    """The rows of `kubectl get ip`."""
    rows = running.kubectl("get", "ip", "--no-headers").splitlines()
    return {row.split()[0]: row.split()[1] for row in rows}


def create(running: Running, *services: str) -> None:
    for name in services:
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
        created = running.send("POST", "/api/v1/namespaces/default/services", service)
        assert created["kind"] == "Service", created


def condition(running: Running, name: str) -> dict[str, Any]:
    found = json.loads(running.kubectl("get", "servicecidr", name, "-o", "json"))
    ready: dict[str, Any] = found["status"]["conditions"][0]
    return ready


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Running]:
    """14 addresses, of which the API's Service and DNS have two."""
    with kdns_up(tmp_path, "--service-cidr", "10.96.0.0/28") as running:
        yield running


def test_a_full_cluster_gets_more_addresses_and_gives_them_back(cluster: Running) -> None:
    assert cluster.kubectl("get", "servicecidr").split()[:5] == ["NAME", "CIDRS", "AGE", "kubernetes", "10.96.0.0/28"]
    own = {"10.96.0.1": "services/default/kubernetes", "10.96.0.10": "services/kube-system/kube-dns"}
    assert addresses(cluster) == own
    services = [f"s{number}" for number in range(12)]
    create(cluster, *services)
    refusal = cluster.kubectl("create", "service", "clusterip", "late", "--tcp=80", check=False)
    assert "Internal error occurred: failed to allocate a serviceIP: range is full" in refusal
    assert sorted(addresses(cluster).values()) == sorted([*own.values(), *(f"services/default/{s}" for s in services)])

    cluster.kubectl("apply", "-f", "-", stdin=cidr("more", MORE))
    cluster.kubectl("wait", "--for=condition=Ready", "servicecidr/more", "--timeout=60s")
    create(cluster, "late")
    (late,) = (ip for ip, parent in addresses(cluster).items() if parent == "services/default/late")
    assert late.startswith("10.97.0.")
    changed = cluster.kubectl("apply", "-f", "-", stdin=cidr("more", "10.98.0.0/29"), check=False)
    assert 'spec.cidrs[0]: Invalid value: "10.98.0.0/29": field is immutable' in changed

    cluster.kubectl("delete", "servicecidr", "more", "--wait=false")
    cluster.kubectl("wait", "--for=condition=Ready=False", "servicecidr/more", "--timeout=60s")
    blocked = condition(cluster, "more")
    assert (blocked["reason"], blocked["message"]) == (
        "Terminating",
        "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
    )
    cluster.kubectl("delete", "service", "late", "s0")
    cluster.kubectl("wait", "--for=delete", "servicecidr/more", "--timeout=60s")
    create(cluster, "next")
    assert len(addresses(cluster)) == 14
