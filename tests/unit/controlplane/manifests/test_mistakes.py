"""Every mistake in manifests at once: what one object hides of its own, and what several objects do to each other."""

from ipaddress import ip_network
from typing import Any

import pytest
import yaml
from served_kinds import CATALOGUE

from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.manifests.manifest import Manifest, manifest_of
from kdns.controlplane.manifests.mistakes import manifest_mistakes

CONFIG = ClusterConfig((ip_network("10.96.0.0/16"), ip_network("fd00::/112")))
NOW_S = 1_700_000_000.0


def service(name: str, **spec: Any) -> dict[str, Any]:
    ports = [{"port": 80}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports, **spec}}


def node(name: str, *cidrs: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"podCIDRs": [*cidrs]}}


def node_port(name: str, number: int, **spec: Any) -> dict[str, Any]:
    return service(name, type="NodePort", ports=[{"port": 80, "nodePort": number}], **spec)


def mistakes(*objects: dict[str, Any]) -> list[str]:
    """The object's name, the field as it is written, and the reason."""
    manifests = []
    for line, obj in enumerate(objects, 1):
        made = manifest_of("f", line, obj, CATALOGUE)
        assert isinstance(made, Manifest)
        manifests.append(made)
    found = manifest_mistakes(manifests, CONFIG, NOW_S, CATALOGUE)
    return [f"{each.manifest.name} {each.manifest.written(each.field)}: {each.reason}" for each in found]


ONE_OBJECT = r"""
nothing:
  object: {apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}}
  says: []
no spec at all:
  object: {apiVersion: v1, kind: Service, metadata: {name: a}, spec: null}
  says: ["a spec.ports: Required value"]
what controllers or the server fill in:
  object:
    apiVersion: v1
    kind: Pod
    metadata: {name: a, uid: x, resourceVersion: "1", creationTimestamp: null, managedFields: []}
    spec: {containers: [{name: c, image: i}], nodeName: n}
    status: {phase: Running, podIP: 10.0.0.1}
  says: []
an object that every cluster has:
  object: {apiVersion: v1, kind: Namespace, metadata: {name: default, labels: {a: "b c"}}}
  says: ["default metadata.labels: Invalid value: \"b c\": a valid label must be an empty string"]
fields and types, and no rules behind them:
  object:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: a, extra: 1}
    spec: {replicas: many, template: {spec: {containers: [{nam: c}, {ports: [{containerPort: http}]}]}}}
  says:
  - "a metadata.extra: unknown field"
  - "a spec.template.spec.containers[0].nam: unknown field"
  - "a spec.replicas: expected an integer of 32 bits, got \"many\""
  - "a spec.template.spec.containers[1].ports[0].containerPort: expected an integer of 32 bits, got \"http\""
every rule:
  object:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: A}
    spec: {template: {spec: {containers: [{name: c}]}}}
  says:
  - "A metadata.name: Invalid value: \"A\""
  - "A spec.selector: Required value"
  - "A spec.template.spec.containers[0].image: Required value"
labels that are no text hide nothing:
  object:
    apiVersion: v1
    kind: Service
    metadata: {name: a, labels: {x: true}, annotations: {}}
    spec: {ports: [{port: 0}]}
  says:
  - "a metadata.labels[x]: expected a string, got a boolean; put it in quotes"
  - "a spec.ports[0].port: Invalid value: 0"
  - "a spec.ports[0].targetPort: Invalid value: 0"
what is allocated hides no rule, and each number is told:
  object:
    apiVersion: v1
    kind: Service
    metadata: {name: a}
    spec:
      type: LoadBalancer
      externalTrafficPolicy: Local
      clusterIP: 10.1.1.1
      healthCheckNodePort: 80
      sessionAffinity: Maybe
      ports: [{port: 80, nodePort: 1, name: a}, {port: 81, nodePort: 2, name: b}]
  says:
  - "a spec.clusterIP: Invalid value: [\"10.1.1.1\"]: failed to allocate IP 10.1.1.1"
  - "a spec.ports[0].nodePort: Invalid value: 1: provided port is not in the valid range"
  - "a spec.ports[1].nodePort: Invalid value: 2: provided port is not in the valid range"
  - "a spec.healthCheckNodePort: Internal error occurred: failed to allocate requested HealthCheck NodePort 80"
  - "a spec.sessionAffinity: Unsupported value: \"Maybe\""
families that cannot be:
  object:
    apiVersion: v1
    kind: Service
    metadata: {name: a}
    spec: {ipFamilies: [IPv7], ports: [{port: 80, protocol: X}]}
  says:
  - "a spec.ipFamilies[0]: Unsupported value: \"IPv7\""
  - "a spec.ports[0].protocol: Unsupported value: \"X\""
a status:
  object:
    apiVersion: v1
    kind: Service
    metadata: {name: a}
    spec: {ports: [{port: 80}]}
    status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}
  says: ["a status."]
a namespace that is nowhere:
  object: {apiVersion: v1, kind: Service, metadata: {name: a, namespace: shop}, spec: {ports: [{port: 0}]}}
  says:
  - "a metadata.namespace: namespaces \"shop\" not found"
  - "a spec.ports[0].port: Invalid value: 0"
  - "a spec.ports[0].targetPort: Invalid value: 0"
"""


@pytest.mark.parametrize(("given", "says"), [each.values() for each in yaml.safe_load(ONE_OBJECT).values()])
def test_the_mistakes_of_one_object(given: dict[str, Any], says: list[str]) -> None:
    found = mistakes(given)
    assert len(found) == len(says), found
    assert all(each.startswith(said) for each, said in zip(found, says, strict=True)), found


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        ([service("a"), service("a")], ["a : Service a is already defined at f:1; that definition is used"]),
        (
            [service("a", clusterIP="10.96.0.9"), service("b", clusterIP="10.96.0.9", clusterIPs=["10.96.0.9"])],
            ["b spec.clusterIP: cluster IP 10.96.0.9 is also requested by Service default/a at f:1"],
        ),
        (
            [service("a", clusterIP="10.96.0.9", sessionAffinity="x"), node_port("b", 30080, clusterIP="10.96.0.9")],
            [
                'a spec.sessionAffinity: Unsupported value: "x": supported values: "ClientIP", "None"',
                "b spec.clusterIP: cluster IP 10.96.0.9 is also requested by Service default/a at f:1",
            ],
        ),
        (
            [node_port("a", 30080), node_port("b", 30080)],
            ["b spec.ports[0].nodePort: node port 30080 is also requested by Service default/a at f:1"],
        ),
        # a number that another Service was given is no clash
        ([service("a", type="NodePort"), *(node_port(f"p{n}", n) for n in range(30086, 30090))], []),
        ([service("a", clusterIP="None"), service("b", clusterIP="None")], []),
        ([service("a", clusterIP="10.96.0.9", type="ExternalName", externalName="x.y")], ["a spec.clusterIP: "]),
        (
            [node("n1", "10.244.0.0/24", "fd01::/80"), node("n2", "10.244.0.128/25"), node("n3", "10.244.1.0/24")],
            ["n2 spec.podCIDRs[0]: 10.244.0.128/25 overlaps 10.244.0.0/24 of Node n1 at f:1"],
        ),
        (
            [node("n1", "10.96.7.0/24"), node("n2", "10.0.0.0/8")],
            [
                "n1 spec.podCIDRs[0]: 10.96.7.0/24 overlaps 10.0.0.0/8 of Node n2 at f:2",
                "n2 spec.podCIDRs[0]: 10.0.0.0/8 overlaps 10.96.0.0/16 of ServiceCIDR kubernetes",
            ],
        ),
    ],
)
def test_what_objects_do_to_each_other(objects: list[dict[str, Any]], says: list[str]) -> None:
    found = mistakes(*objects)
    assert len(found) == len(says), found
    assert all(each.startswith(said) for each, said in zip(sorted(found), says, strict=True)), found


def test_ranges_of_services_may_overlap() -> None:
    """As in Kubernetes, and their addresses are given."""
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR"}
    more = [
        {**kind, "metadata": {"name": cidr[:4]}, "spec": {"cidrs": [cidr]}} for cidr in ("10.0.0.0/8", "10.9.0.0/16")
    ]
    assert mistakes(*more, service("a", clusterIP="10.9.0.9")) == []
