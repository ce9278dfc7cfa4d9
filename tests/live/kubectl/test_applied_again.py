"""Each folder of deploy/, applied twice over kubeadm's addons: the second time changes nothing."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kdns_process import DEADLINE_S, ROOT, Running, kdns_up

KUBEADM = Path(__file__).with_name("kubeadm_addons.yaml")
APPLICATIONS = {
    "dns": ("-k", "deploy"),
    "node-local": ("-k", "deploy/node-local"),
    "proxy": ("-k", "deploy/proxy"),
    "proxy-iptables": ("-k", "deploy/proxy-iptables"),
    "proxy-ipvs": ("-k", "deploy/proxy-ipvs"),
    "cleanup": ("-f", "deploy/proxy/cleanup.yaml"),
}
WORKLOADS = ("deployments", "daemonsets")
GROUPS = {**dict.fromkeys(WORKLOADS, "apis/apps/v1"), "endpointslices": "apis/discovery.k8s.io/v1"}
"""Plural → where its group is served; all others are of the core group."""
KUBEADMS = ("services/kube-dns", "deployments/coredns", "daemonsets/kube-proxy")
KUBE_DNS_PORTS = {("dns", "UDP", 53), ("dns-tcp", "TCP", 53), ("metrics", "TCP", 9153)}

Json = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("kubeadm")
    with kdns_up(folder) as running:
        system(running, "delete", "service/kube-dns", "endpointslices/kube-dns")  # the address is kubeadm's here
        running.kubectl("create", "-f", str(KUBEADM))
        yield running


def system(cluster: Running, *arguments: str) -> str:
    printed: str = cluster.kubectl("-n", "kube-system", *arguments)
    return printed


def items(cluster: Running, kind: str) -> list[Json]:
    """The objects of a kind, without the price of kubectl."""
    listed: list[Json] = cluster.read(f"/{GROUPS.get(kind, 'api/v1')}/namespaces/kube-system/{kind}")["items"]
    return listed


def specs(cluster: Running, *kinds: str) -> dict[str, Json]:
    return {f"{kind}/{obj['metadata']['name']}": obj["spec"] for kind in kinds for obj in items(cluster, kind)}


def endpoints(cluster: Running) -> dict[str, Json]:
    """Each slice's ports and ready Pods, as soon as the workloads' Pods run and the slices have all of kube-dns's."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        pods = [pod for pod in items(cluster, "pods") if pod["metadata"].get("labels", {}).get("k8s-app") == "kube-dns"]
        replicas = sum(obj["spec"]["replicas"] for obj in items(cluster, "deployments"))
        slices = {
            obj["metadata"]["labels"]["kubernetes.io/service-name"]: {
                "ports": sorted((port["name"], port["protocol"], port["port"]) for port in obj["ports"] or ()),
                "pods": sorted(e["targetRef"]["name"] for e in obj["endpoints"] or () if e["conditions"]["ready"]),
            }
            for obj in items(cluster, "endpointslices")
        }
        running = sorted(pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running")
        if len(running) == replicas and all(endpoint_slice["pods"] == running for endpoint_slice in slices.values()):
            return slices
        assert time.monotonic() < deadline_s, (running, replicas, slices)
        time.sleep(0.1)


def state(cluster: Running) -> dict[str, Any]:
    return {**specs(cluster, "services", *WORKLOADS), "endpoints": endpoints(cluster)}


@pytest.mark.parametrize("application", APPLICATIONS)
def test_applied_twice_over_kubeadms_addons(cluster: Running, application: str) -> None:
    flag, path = APPLICATIONS[application]
    kubeadms = {key: spec for key, spec in specs(cluster, "services", *WORKLOADS).items() if key in KUBEADMS}
    states = []
    for _ in range(2):
        system(cluster, "apply", flag, str(ROOT / path))
        states.append(state(cluster))
    first = states[0]
    assert states == [first] * 2
    assert {key: first[key] for key in KUBEADMS} == kubeadms
    assert {*first["endpoints"]["kube-dns"]["ports"]} == KUBE_DNS_PORTS


def test_one_application_mends_a_kube_dns_whose_udp_port_leads_to_tcp(cluster: Running) -> None:
    """Releases before this test had named target ports; so the second `kubectl apply` left the Service, see deploy/."""
    service = json.loads(system(cluster, "get", "service", "kube-dns", "-o", "json"))
    mistaken = {"name": "kube-dns", "namespace": "kube-system", "annotations": service["metadata"]["annotations"]}
    ports = [dict(port) for port in service["spec"]["ports"]]
    ports[0]["targetPort"] = "dns-tcp"
    applied = {"ports": [{**ports[0], "targetPort": "dns"}, {**ports[1], "targetPort": "dns-tcp"}, ports[2]]}
    last = {"apiVersion": "v1", "kind": "Service", "metadata": mistaken, "spec": {**service["spec"], **applied}}
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(last)}
    patch = {"metadata": {"annotations": annotation}, "spec": {"ports": ports}}
    system(cluster, "patch", "service", "kube-dns", "--type=merge", "-p", json.dumps(patch))
    system(cluster, "apply", "-k", str(ROOT / "deploy"))
    assert specs(cluster, "services")["services/kube-dns"]["ports"] == service["spec"]["ports"]
