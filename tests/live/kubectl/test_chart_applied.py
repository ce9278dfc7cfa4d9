"""What Helm makes of deploy/chart, applied with kubectl: the API accepts it, and the Pods are behind their Services."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from expecting import until_as
from kdns_process import DEADLINE_S, ROOT, Running, kdns_up

from kdns import __version__
from tools.chart import CHART, RELEASE, RENDERED

KUBEADM = Path(__file__).with_name("kubeadm_addons.yaml")
OF_THE_OPERATOR = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.monitoring.coreos.com}}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}}}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
---
"""


@contextmanager
def without_kube_dns(folder: Path) -> Iterator[Running]:
    """An API whose Service kube-dns is kubeadm's, or none."""
    with kdns_up(folder) as running:
        running.kubectl("-n", "kube-system", "delete", "service/kube-dns", "endpointslices/kube-dns")
        yield running


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Running]:
    with without_kube_dns(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One for applications that leave those of the others alone."""
    with without_kube_dns(tmp_path_factory.mktemp("shared")) as running:
        yield running


def of_system(cluster: Running, *arguments: str) -> Any:
    return json.loads(cluster.kubectl("-n", "kube-system", "get", *arguments, "-o", "json"))


def apply(cluster: Running, case: str) -> str:
    """Apply a rendering, and again: the second time changes nothing."""
    path = str(RENDERED / f"{case}.yaml")
    applied = cluster.kubectl("apply", "-f", path)
    before = contents(cluster, path)
    cluster.kubectl("apply", "-f", path)
    assert contents(cluster, path) == before
    return applied


def contents(cluster: Running, path: str) -> list[Any]:
    """The objects of a file as the API has them, without metadata and status."""
    listed = json.loads(cluster.kubectl("get", "-f", path, "-o", "json"))["items"]
    return [{key: value for key, value in each.items() if key not in ("metadata", "status")} for each in listed]


def behind(cluster: Running, service: str) -> list[str]:
    """The Deployments of the ready Pods behind a Service."""
    slices = of_system(cluster, "endpointslices", "-l", f"kubernetes.io/service-name={service}")["items"]
    names = {
        endpoint["targetRef"]["name"]
        for endpoint_slice in slices
        for endpoint in endpoint_slice.get("endpoints") or ()
        if endpoint["conditions"]["ready"]
    }
    return sorted(name.rsplit("-", 2)[0] for name in names)


def test_beside_coredns_its_pods_are_behind_kube_dns(shared: Running) -> None:
    shared.kubectl("create", "-f", str(KUBEADM))
    before = of_system(shared, "service", "kube-dns")["spec"]
    apply(shared, "default")
    until_as(["coredns", "coredns", "kdns", "kdns"], lambda: behind(shared, "kube-dns"), "kube-dns")
    assert behind(shared, "kdns") == ["kdns", "kdns"]
    assert of_system(shared, "service", "kube-dns")["spec"] == before
    shared.kubectl("-n", "kube-system", "scale", "deployment/coredns", "--replicas=0")
    until_as(["kdns", "kdns"], lambda: behind(shared, "kube-dns"), "kube-dns")


def test_as_the_dns_of_a_cluster(cluster: Running) -> None:
    kinds = {"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}
    definitions = "".join(OF_THE_OPERATOR.format(kind=kind, plural=plural) for kind, plural in kinds.items())
    cluster.kubectl("apply", "-f", "-", stdin=definitions)
    cluster.kubectl("create", "namespace", "monitoring")
    apply(cluster, "cluster")
    service = of_system(cluster, "service", "kube-dns")
    assert service["spec"]["clusterIP"] == "10.96.0.10"
    assert {port["port"] for port in service["spec"]["ports"]} == {53}
    until_as(["kdns"], lambda: behind(cluster, "kube-dns"), "kube-dns")
    assert cluster.rdata("kube-dns.kube-system.svc.cluster.local") == ["10.96.0.10"]
    cluster.kubectl("-n", "kube-system", "scale", "deployment/kdns", "--replicas=4")  # as the autoscaler does
    until_as(["kdns"] * 4, lambda: behind(cluster, "kube-dns"), "kube-dns")
    apply(cluster, "cluster")
    assert of_system(cluster, "deployment", "kdns")["spec"]["replicas"] == 4
    assert len(of_system(cluster, "servicemonitors")["items"]) == 1


def test_the_autoscaler_of_deploy_is_that_of_the_chart(shared: Running) -> None:
    shared.kubectl("apply", "-k", str(ROOT / "deploy" / "autoscaler"))
    plain = contents(shared, str(ROOT / "deploy" / "autoscaler" / "autoscaler.yaml"))
    charted = [
        {key: value for key, value in each.items() if key != "metadata"}
        for each in yaml.safe_load_all((RENDERED / "cluster.yaml").read_text())
        if each["metadata"]["name"] == "kdns-autoscaler"
    ]
    assert [each["kind"] for each in plain] == [each["kind"] for each in charted]
    for key in ("rules", "roleRef", "subjects"):
        assert [each.get(key) for each in plain] == [each.get(key) for each in charted]
    (ours,), (of_chart,) = (
        next(each for each in found if each["kind"] == "Deployment")["spec"]["template"]["spec"]["containers"]
        for found in (plain, charted)
    )
    assert ours["image"] == of_chart["image"]
    assert ours["securityContext"] == of_chart["securityContext"]
    assert ours["command"] == [word for word in of_chart["command"] if "nodelabels" not in word]
    until_as(1, lambda: of_system(shared, "deployment", "kdns-autoscaler")["status"].get("readyReplicas"), "its Pods")


def test_as_an_application(shared: Running) -> None:
    applied = apply(shared, "app")
    assert "horizontalpodautoscaler.autoscaling/edge created" in applied
    ports = of_system(shared, "service", "edge")["spec"]["ports"]
    assert {port["nodePort"] for port in ports if port["port"] == 1053} == {30053}


def test_helm_installs_upgrades_rolls_back_and_uninstalls(cluster: Running) -> None:
    helm = pytest.importorskip("helm_python", reason="Helm is not here: pip install helm-python-sdk")
    name, namespace = RELEASE

    def deployed() -> tuple[int, str]:
        deployment = of_system(cluster, "deployment", name)
        image: str = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
        return deployment["status"].get("readyReplicas", 0), image

    with helm.Config(kubeconfig_path=cluster.folder / "kdns.kubeconfig", namespace=namespace) as releases:
        releases.install(CHART, name, {}, namespace=namespace, wait="watcher", timeout=int(DEADLINE_S))
        assert deployed() == (2, f"kdns:{__version__}")
        values = {"replicaCount": 3, "image": {"tag": "next"}}
        releases.upgrade(CHART, name, values, namespace=namespace, wait="watcher", timeout=int(DEADLINE_S))
        assert deployed() == (3, "kdns:next")
        releases.rollback(name, version=1, wait="watcher", timeout=int(DEADLINE_S))
        assert deployed() == (2, f"kdns:{__version__}")
        releases.uninstall(name, wait="watcher", timeout=int(DEADLINE_S))
    kinds = "all,configmaps,serviceaccounts,clusterroles,poddisruptionbudgets,networkpolicies"
    assert name not in cluster.kubectl("get", kinds, "-A", "-o", "name")
