"""deploy/chart: its values, and what Helm made of them for tests/golden/chart; with Helm here, it is made again."""

import json
import re
from functools import cache
from typing import Any

import pytest
import yaml
from configured import configured

from kdns import __version__
from tools.chart import CHART, RENDERED, ROOT, cases, digest, rendered, schema

VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
TEMPLATES = "".join(path.read_text(encoding="utf-8") for path in sorted((CHART / "templates").iterdir()))
RULES = yaml.safe_load((ROOT / "deploy/monitoring/rules.yaml").read_text(encoding="utf-8"))


@cache
def objects(case: str) -> dict[tuple[str, str], Any]:
    """The objects of a rendering, by kind and name."""
    documents = yaml.safe_load_all((RENDERED / f"{case}.yaml").read_text(encoding="utf-8"))
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def of_deploy(file: str, kind: str) -> Any:
    documents = yaml.safe_load_all((ROOT / "deploy" / file).read_text(encoding="utf-8"))
    return next(document for document in documents if document["kind"] == kind)


def pod(case: str, name: str = "kdns") -> Any:
    return objects(case)["Deployment", name]["spec"]["template"]["spec"]


@pytest.mark.parametrize("case", cases())
def test_a_rendering_is_of_the_chart_as_it_is(case: str) -> None:
    first = (RENDERED / f"{case}.yaml").read_text(encoding="utf-8").partition("\n")[0]
    assert first.endswith(digest(cases()[case])), "run `python -m tools.chart`"


@pytest.mark.parametrize("case", cases())
def test_helm_renders_it(case: str) -> None:
    pytest.importorskip("helm_python", reason="Helm is not here: pip install helm-python-sdk")
    text = (RENDERED / f"{case}.yaml").read_text(encoding="utf-8").partition("\n")[2]
    assert rendered(yaml.safe_load(cases()[case])) == text


@pytest.mark.parametrize("case", cases())
def test_helm_lints_it(case: str) -> None:
    helm = pytest.importorskip("helm_python", reason="Helm is not here: pip install helm-python-sdk")
    found = helm.lint(CHART, yaml.safe_load(cases()[case]), strict=True)
    assert [message["error"] for message in found["messages"]] == ["icon is recommended"]
    assert found["errors"] == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"replicas": 3}, "additional properties 'replicas' not allowed"),
        ({"replicaCount": "three"}, "got string, want integer"),
        ({"rbac": {"pspEnable": True}}, "additional properties 'pspEnable' not allowed"),
        ({"servers": [{"zones": [{"scheme": "grpc://"}], "plugins": []}]}, 'scheme "grpc://" is not supported'),
        ({"prometheus": {"monitor": {"enabled": True}}}, "needs prometheus.service.enabled"),
    ],
)
def test_helm_refuses_values(values: dict[str, Any], says: str) -> None:
    helm = pytest.importorskip("helm_python", reason="Helm is not here: pip install helm-python-sdk")
    with pytest.raises(helm.HelmError, match=re.escape(says)):
        rendered(values)


def test_the_schema_is_that_of_the_values() -> None:
    assert (CHART / "values.schema.json").read_text(encoding="utf-8") == schema(), "run `python -m tools.chart`"
    properties = json.loads(schema())["properties"]
    assert properties.keys() == VALUES.keys() | {"global"}


def test_every_value_is_used_and_every_used_value_exists() -> None:
    used = set(re.findall(r"\.Values\.([A-Za-z0-9]+)", TEMPLATES))
    assert used == VALUES.keys()


@pytest.mark.parametrize("case", ["default", "cluster"])
def test_a_pod_that_ends_is_not_ready_while_it_still_answers(case: str) -> None:
    probe, text = pod(case)["containers"][0]["readinessProbe"], objects(case)["ConfigMap", "kdns"]["data"]["Corefile"]
    lameduck_s = max(map(int, re.findall(r"lameduck (\d+)s", text)))
    assert probe["periodSeconds"] * probe["failureThreshold"] <= lameduck_s / 2  # the rest is the nodes'
    assert pod(case)["terminationGracePeriodSeconds"] > lameduck_s


def test_the_chart_has_the_version_of_kdns() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["name"], chart["version"], chart["appVersion"]) == ("kdns", __version__, __version__)


def test_by_default_it_is_what_deploy_has() -> None:
    found = objects("default")
    plain = of_deploy("deployment.yaml", "Deployment")["spec"]["template"]["spec"]
    assert {kind for kind, _ in found} == {
        *("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "Deployment", "Service"),
        *("PodDisruptionBudget", "NetworkPolicy"),
    }
    made = pod("default")
    same = ("serviceAccountName", "priorityClassName", "dnsPolicy", "terminationGracePeriodSeconds", "nodeSelector")
    assert {key: made[key] for key in (*same, "tolerations")} == {key: plain[key] for key in (*same, "tolerations")}
    assert made["securityContext"] == plain["securityContext"] | {"fsGroup": plain["securityContext"]["runAsGroup"]}
    (container,), (of_plain,) = made["containers"], plain["containers"]
    for key in ("image", "args", "resources", "securityContext", "volumeMounts"):
        assert container[key] == of_plain[key], key
    assert found["Deployment", "kdns"]["spec"]["replicas"] == 2
    roles = (found["ClusterRole", "kdns"]["rules"], of_deploy("rbac.yaml", "ClusterRole")["rules"])
    assert roles[0] == roles[1][:2]  # without ServiceImports
    texts = (found["ConfigMap", "kdns"], of_deploy("configmap.yaml", "ConfigMap"))
    of_chart, of_manifest = (configured(text["data"]["Corefile"]) for text in texts)
    assert [each.zones for each in of_chart] == [each.zones for each in of_manifest]
    assert [list(each.directives) for each in of_chart] == [list(each.directives) for each in of_manifest]
    assert texts[0]["data"]["Corefile"].split() == texts[1]["data"]["Corefile"].split()


@pytest.mark.parametrize("case", cases())
def test_everything_selects_the_pods(case: str) -> None:
    found = objects(case)
    name = next(name for kind, name in found if kind == "Deployment" and not name.endswith("-autoscaler"))
    labels = found["Deployment", name]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        selector
        for (kind, _), each in found.items()
        if not each["metadata"]["name"].endswith("-autoscaler") and kind != "ServiceMonitor"
        for field in ("selector", "podSelector")
        if (selector := each.get("spec", {}).get(field))
    ]
    assert len(selectors) >= 2
    for selector in selectors:
        assert selector.get("matchLabels", selector).items() <= labels.items()


@pytest.mark.parametrize("case", cases())
def test_ports_are_those_of_the_corefile(case: str) -> None:
    (config,) = (each for (kind, name), each in objects(case).items() if kind == "ConfigMap" and "auto" not in name)
    served = {
        (address.port_or_default(53), protocol)
        for block in configured(config["data"]["Corefile"])
        for address in block.addresses
        for protocol in (("TCP",) if address.scheme == "tls" else ("UDP", "TCP"))
    }
    services = [each for (kind, name), each in objects(case).items() if kind == "Service" and "metrics" not in name]
    assert [{(port["port"], port["protocol"]) for port in service["spec"]["ports"]} for service in services] == [served]
    container = pod(case, config["metadata"]["name"])["containers"][0]
    assert served < {(port["containerPort"], port["protocol"]) for port in container["ports"]}


def test_a_cluster_of_its_own() -> None:
    found = objects("cluster")
    service = found["Service", "kube-dns"]
    assert service["spec"]["clusterIP"] == "10.96.0.10"
    assert service["metadata"]["annotations"] == {"example.org/owner": "network"}
    assert found["ConfigMap", "kdns"]["metadata"]["annotations"] == {"example.org/owner": "everybody"}
    assert pod("cluster")["containers"][0]["image"] == "registry.example/kdns:1.2"
    assert pod("cluster")["imagePullSecrets"] == [{"name": "registry-login"}]
    budget = found["PodDisruptionBudget", "kdns"]["spec"]
    assert (budget["minAvailable"], "maxUnavailable" in budget) == (1, False)  # Helm merges both values
    assert "serviceimports" in str(found["ClusterRole", "kdns"])
    template = found["Deployment", "kdns"]["spec"]["template"]["metadata"]
    assert template["labels"]["team"] == "network"
    assert template["annotations"]["example.org/reason"] == "test"


def test_its_autoscaler_scales_the_deployment_and_nothing_else() -> None:
    found, name = objects("cluster"), "kdns-autoscaler"
    assert "replicas" not in found["Deployment", "kdns"]["spec"]
    assert json.loads(found["ConfigMap", name]["data"]["linear"]) == {
        "coresPerReplica": 256,
        "nodesPerReplica": 8,
        "min": 2,
        "max": 20,
        "includeUnschedulableNodes": False,
        "preventSinglePointFailure": True,
    }
    (container,) = pod("cluster", name)["containers"]
    assert {f"--configmap={name}", "--target=deployment/kdns", "--namespace=kube-system"} < set(container["command"])
    assert container["command"][-1] == "--nodelabels=kubernetes.io/os=linux"
    assert found["ClusterRole", name]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}
    ]
    assert [rule.get("resourceNames") for rule in found["Role", name]["rules"]] == [["kdns"], [name]]
    assert not any(kind == "HorizontalPodAutoscaler" for kind, _ in found)


def test_its_metrics_are_scraped_and_its_alerts_are_those_of_deploy() -> None:
    found = objects("cluster")
    monitor, service = found["ServiceMonitor", "kdns"], found["Service", "kdns-metrics"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert service["spec"]["ports"][0]["port"] == 9153
    assert monitor["spec"]["endpoints"][0]["relabelings"] == [{"targetLabel": "job", "replacement": "kdns"}]
    assert monitor["metadata"]["labels"]["release"] == "monitoring"
    rules = found["PrometheusRule", "kdns"]
    assert rules["spec"] == RULES["spec"]
    assert rules["metadata"]["namespace"] == "monitoring"


def test_an_application() -> None:
    found = objects("app")
    assert {kind for kind, _ in found} == {"ConfigMap", "Deployment", "Service", "HorizontalPodAutoscaler"}
    scaler = found["HorizontalPodAutoscaler", "edge"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == "edge"
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 10)
    assert "replicas" not in found["Deployment", "edge"]["spec"]
    made = pod("app", "edge")
    assert made["serviceAccountName"] == "dns"
    assert not {"dnsPolicy", "priorityClassName", "nodeSelector", "tolerations"} & made.keys()
    assert made["volumes"][-1]["secret"] == {"secretName": "edge-tls", "defaultMode": 0o440}
    assert not {"livenessProbe", "resources"} & made["containers"][0].keys()
    ports = found["Service", "edge"]["spec"]["ports"]
    assert {port.get("nodePort") for port in ports if port["port"] == 1053} == {30053}
    assert "k8s-app" not in str(found["Deployment", "edge"])
