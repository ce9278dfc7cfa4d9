"""deploy/ gives kdns what it needs in a cluster and no more."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from configured import configured
from dns_chain import only

from kdns import __version__
from kdns.cluster.objects import EndpointSlice, Namespace, Pod, Service, ServiceImport
from kdns.cluster.watch import RESOURCES
from kdns.plugins.settings import SETTINGS
from kdns.plugins.sources.kubernetes import plugin as kubernetes
from kdns.runtime.files.yaml import documents
from kdns.serverblocks.config import ServerConfig

DEPLOY = Path(__file__).parents[3] / "deploy"
PROJECT = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FILES = [DEPLOY / name for name in yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"]]


def objects() -> dict[str, Any]:
    return {doc.value["kind"]: doc.value for path in FILES for doc in documents(str(path), path.read_text())}


OBJECTS = objects()
POD: dict[str, Any] = OBJECTS["Deployment"]["spec"]["template"]["spec"]
CONTAINER: dict[str, Any] = POD["containers"][0]


@pytest.fixture
def server() -> ServerConfig:
    (one,) = configured(OBJECTS["ConfigMap"]["data"]["Corefile"])
    return one


def test_all_files_are_in_the_kustomization() -> None:
    assert {path.name for path in FILES} | {"kustomization.yaml"} == {path.name for path in DEPLOY.glob("*.yaml")}
    assert set(OBJECTS) == {
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "Deployment",
        "Service",
        "PodDisruptionBudget",
        "NetworkPolicy",
    }


def test_everything_lives_in_kube_system() -> None:
    for kind, obj in OBJECTS.items():
        assert obj["metadata"].get("namespace") == (None if kind.startswith("ClusterRole") else "kube-system")


def test_the_role_allows_exactly_what_is_watched() -> None:
    allowed = {
        (group, resource, verb)
        for rule in OBJECTS["ClusterRole"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    watched = [RESOURCES[kind] for kind in (Namespace, Service, EndpointSlice, Pod, ServiceImport)]
    needed = {(each.group, each.plural, verb) for each in watched for verb in ("list", "watch")}
    assert allowed == needed
    assert all(set(rule) == {"apiGroups", "resources", "verbs"} for rule in OBJECTS["ClusterRole"]["rules"])


def test_the_role_is_bound_to_the_pods_account() -> None:
    account = OBJECTS["ServiceAccount"]["metadata"]
    binding = OBJECTS["ClusterRoleBinding"]
    assert POD["serviceAccountName"] == account["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    assert binding["roleRef"] == role | {"name": OBJECTS["ClusterRole"]["metadata"]["name"]}


def test_the_corefile_is_kubeadms(server: ServerConfig) -> None:
    assert server.zones == (".",)
    assert set(server.directives) == {
        *("errors", "health", "ready", "kubernetes", "prometheus", "forward", "cache", "loop", "reload", "loadbalance")
    }
    assert only(server, SETTINGS["health"]).lameduck_s == 5
    names = only(server, kubernetes.DIRECTIVE)
    assert names.options.zones == ("cluster.local.", "in-addr.arpa.", "ip6.arpa.")
    assert (names.options.pods, names.options.ttl_s, names.fallthrough) == (
        "insecure",
        30,
        ("in-addr.arpa.", "ip6.arpa."),
    )


def test_probes_and_ports_are_those_of_the_corefile(server: ServerConfig) -> None:
    healthy, readied = only(server, SETTINGS["health"]), only(server, SETTINGS["ready"])
    scraped = only(server, SETTINGS["prometheus"])
    liveness, readiness = CONTAINER["livenessProbe"]["httpGet"], CONTAINER["readinessProbe"]["httpGet"]
    assert (liveness["path"], liveness["port"]) == ("/health", healthy.address.port)
    assert (readiness["path"], readiness["port"]) == ("/ready", readied.address.port)
    ports = {port["name"]: (port["containerPort"], port["protocol"]) for port in CONTAINER["ports"]}
    dns = {address.port_or_default(53) for address in server.addresses}
    assert dns == {53}
    assert ports == {
        "dns": (53, "UDP"),
        "dns-tcp": (53, "TCP"),
        "metrics": (scraped.address.port, "TCP"),
        "health": (healthy.address.port, "TCP"),
        "ready": (readied.address.port, "TCP"),
    }
    for served in (healthy.address, readied.address, scraped.address):
        assert served.host == ""  # not only loopback: the kubelet and Prometheus ask from outside
    assert POD["terminationGracePeriodSeconds"] > healthy.lameduck_s
    probe = CONTAINER["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] <= healthy.lameduck_s / 2  # the rest is the nodes'


def test_moving_back_leaves_the_service_only() -> None:
    """What is left of another kdns keeps Helm from installing one: it takes no object that is not its release's."""
    page = (DEPLOY / "README.md").read_text(encoding="utf-8")
    deleted = re.findall(r"-f deploy/(\S+)", page.partition("## Moving back")[2].partition("```\n\n")[0])
    applied = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    assert sorted([*deleted, "service.yaml"]) == sorted(applied)


def test_the_service_is_kube_dns() -> None:
    service, labels = OBJECTS["Service"], OBJECTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert service["metadata"]["name"] == "kube-dns"
    assert service["metadata"]["labels"]["k8s-app"] == "kube-dns"
    assert service["spec"]["clusterIP"] == "10.96.0.10"
    assert service["spec"]["selector"] == {"k8s-app": "kube-dns"}
    assert service["spec"]["selector"].items() <= labels.items()
    assert OBJECTS["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    ports = [(port["name"], port["port"], port["protocol"]) for port in service["spec"]["ports"]]
    assert ports == [("dns", 53, "UDP"), ("dns-tcp", 53, "TCP"), ("metrics", 9153, "TCP")]
    known = {port["name"] for port in CONTAINER["ports"]} | {port["containerPort"] for port in CONTAINER["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= known
    assert service["metadata"]["annotations"]["prometheus.io/port"] == "9153"


def test_the_budget_and_the_policy_are_those_of_the_pods() -> None:
    selector = OBJECTS["Deployment"]["spec"]["selector"]
    assert OBJECTS["PodDisruptionBudget"]["spec"]["selector"] == selector
    assert OBJECTS["NetworkPolicy"]["spec"]["podSelector"] == selector
    assert OBJECTS["Deployment"]["spec"]["replicas"] > OBJECTS["PodDisruptionBudget"]["spec"]["maxUnavailable"]
    allowed = {(port["port"], port["protocol"]) for port in OBJECTS["NetworkPolicy"]["spec"]["ingress"][0]["ports"]}
    assert allowed == {(port["port"], port["protocol"]) for port in OBJECTS["Service"]["spec"]["ports"]}


def test_the_container_may_do_nothing_but_bind_port_53() -> None:
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
    }
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["runAsUser"] > 0
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(POD)
    assert all("hostPath" not in volume for volume in POD["volumes"])


def test_the_pods_are_as_important_and_as_spread_as_corednss() -> None:
    assert OBJECTS["Deployment"]["spec"]["replicas"] == 2
    assert POD["priorityClassName"] == "system-cluster-critical"
    assert POD["dnsPolicy"] == "Default"
    assert POD["affinity"]["podAntiAffinity"]
    assert set(CONTAINER["resources"]["requests"]) == {"cpu", "memory"}


def test_the_corefile_is_mounted_where_the_arguments_say() -> None:
    mount, state = CONTAINER["volumeMounts"]
    of_state, volume = POD["volumes"]
    assert (mount["name"], state["name"]) == (volume["name"], of_state["name"])
    (config,) = configured(OBJECTS["ConfigMap"]["data"]["Corefile"])
    of_kubernetes = only(config, kubernetes.DIRECTIVE)
    assert of_kubernetes.snapshot
    assert of_kubernetes.snapshot.path.startswith(f"{state['mountPath']}/")
    assert CONTAINER["args"] == ["-conf", f"{mount['mountPath']}/{volume['configMap']['items'][0]['path']}"]
    assert volume["configMap"]["name"] == OBJECTS["ConfigMap"]["metadata"]["name"]
    assert volume["configMap"]["items"][0]["key"] in OBJECTS["ConfigMap"]["data"]


def test_the_image() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    (version,) = set(re.findall(r"^FROM docker\.io/library/python:(\S+)-slim", text, re.MULTILINE))
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
    assert "-c constraints.txt ." in text
    assert f"USER {POD['securityContext']['runAsUser']}:{POD['securityContext']['runAsGroup']}" in text
    assert 'ENTRYPOINT ["kdns", "serve"]' in text
    assert CONTAINER["image"] == f"kdns:{__version__}"
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in line.split():
            assert (DEPLOY.parent / name).exists(), name
