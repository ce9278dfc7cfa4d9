"""Validation of metadata, formats, Pods, Namespaces and Events: fields and messages."""

from collections.abc import Callable

import pytest

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.core import validate_event, validate_namespace
from kdns.controlplane.kinds.pod.defaults import default_pod
from kdns.controlplane.kinds.pod.validation import validate_pod
from kdns.controlplane.kinds.service.ip_families import validate_ip_changes
from kdns.controlplane.kinds.service.validation import validate_external_traffic
from kdns.controlplane.kinds.validation import validate_meta, validate_meta_update


def told(causes: list[Cause]) -> list[str]:
    """Fields and messages, without regular expressions."""
    return [f"{cause.field}: {cause.message.partition(' (e.g.')[0]}" for cause in causes]


LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
)
QUALIFIED = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
ALONE = "name is neither a standard finalizer name nor is it fully qualified"


def _controller(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": True}


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({}, []),
        ({"name": None}, ["metadata.name: Required value: name or generateName is required"]),
        ({"namespace": None}, ["metadata.namespace: Required value"]),
        ({"generateName": "web-"}, []),
        ({"labels": {"app.kubernetes.io/name": "x"}}, []),
        (
            {"labels": {"/x": "y"}},
            ['metadata.labels: Invalid value: "/x": prefix part must be non-empty'],
        ),
        (
            {"labels": {"x": "two words"}},
            [f'metadata.labels: Invalid value: "two words": {VALUE} end with an alphanumeric character'],
        ),
        ({"annotations": {"Some.Org/Key": "any text"}}, []),
        (
            {"annotations": {"k": "x" * 262144}},
            ["metadata.annotations: Too long: may not be more than 262144 bytes"],
        ),
        (
            {"ownerReferences": [{"kind": "Service", "name": "s", "uid": "u"}]},
            ['metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty'],
        ),
        (
            {"ownerReferences": [{"apiVersion": "apps/v1"}, {"apiVersion": "a/b/c"}]},
            [
                'metadata.ownerReferences.kind: Invalid value: "": must not be empty',
                'metadata.ownerReferences.name: Invalid value: "": must not be empty',
                'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
                'metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": version must not be empty',
                'metadata.ownerReferences.kind: Invalid value: "": must not be empty',
                'metadata.ownerReferences.name: Invalid value: "": must not be empty',
                'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
            ],
        ),
        (
            {"ownerReferences": [_controller("x"), _controller("y")]},
            [
                (
                    "metadata.ownerReferences: Invalid value: "
                    '[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u","controller":true},'
                    '{"apiVersion":"v1","kind":"Pod","name":"y","uid":"u","controller":true}]: '
                    "Only one reference can have Controller set to true. "
                    'Found "true" in references for Pod/x and Pod/y'
                )
            ],
        ),
        ({"finalizers": ["example.com/a", "foregroundDeletion"]}, []),
        (
            {"finalizers": ["orphan", "x y", "foregroundDeletion"]},
            [
                f'metadata.finalizers: Invalid value: "x y": name part {QUALIFIED}',
                (
                    'metadata.finalizers: Invalid value: ["orphan","x y","foregroundDeletion"]: '
                    "finalizer orphan and foregroundDeletion cannot be both set"
                ),
                f'metadata.finalizers[1]: Invalid value: "x y": {ALONE}',
            ],
        ),
        (
            {"finalizers": ["example.com/a", "alone"]},
            [f'metadata.finalizers[1]: Invalid value: "alone": {ALONE}'],
        ),
    ],
)
def test_metadata(meta: Json, expected: list[str]) -> None:
    named = {"name": "a", "namespace": "b", **meta}
    assert told(validate_meta({"metadata": named}, formats.dns_label)) == expected


ONLY_BALANCED = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"


@pytest.mark.parametrize(
    ("service_type", "policy", "port", "expected"),
    [
        ("ClusterIP", None, None, []),
        ("NodePort", "Local", None, []),
        ("LoadBalancer", "Cluster", None, []),
        ("LoadBalancer", "Local", 30000, []),
        ("LoadBalancer", "Local", 0, ["spec.healthCheckNodePort: Required value"]),
        ("LoadBalancer", "Local", None, ["spec.healthCheckNodePort: Required value"]),
        (
            "LoadBalancer",
            "Local",
            65536,
            ["spec.healthCheckNodePort: Invalid value: 65536: must be between 1 and 65535, inclusive"],
        ),
        ("LoadBalancer", "Cluster", 30000, [f"spec.healthCheckNodePort: Invalid value: 30000: {ONLY_BALANCED}"]),
        ("NodePort", "Local", 30000, [f"spec.healthCheckNodePort: Invalid value: 30000: {ONLY_BALANCED}"]),
    ],
)
def test_health_check_ports(service_type: str, policy: str | None, port: int | None, expected: list[str]) -> None:
    spec = {"type": service_type, "externalTrafficPolicy": policy, "healthCheckNodePort": port}
    assert told(validate_external_traffic(spec)) == expected


def test_a_second_family_is_released_with_its_policy() -> None:
    both = {"clusterIPs": ["10.96.0.1", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}
    first = {"clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "PreferDualStack"}
    assert told(validate_ip_changes(first, both)) == [
        "spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be set to 'SingleStack' when releasing the "
        f"secondary {what}"
        for what in ("clusterIP", "ipFamily")
    ]
    assert validate_ip_changes({**first, "ipFamilyPolicy": "SingleStack"}, both) == []


def test_cluster_scoped_objects_have_no_namespace() -> None:
    causes = validate_namespace({"metadata": {"name": "Upper", "namespace": "x"}})
    assert told(causes) == [
        f'metadata.name: Invalid value: "Upper": {LABEL} an alphanumeric character',
        "metadata.namespace: Forbidden: not allowed on this type",
    ]


def test_identity_is_for_life() -> None:
    old = {"metadata": {"name": "a", "namespace": "x", "uid": "1"}}
    new = {"metadata": {"name": "b", "namespace": "x", "uid": "2"}}
    assert told(validate_meta_update(old, new)) == [
        'metadata.name: Invalid value: "b": field is immutable',
        'metadata.uid: Invalid value: "2": field is immutable',
    ]


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (formats.dns_label, ["a", "a-1", "1a", "a" * 63], ["", "-a", "a-", "A", "a.b", "a" * 64, "a\n"]),
        (formats.dns_label_1035, ["a", "a-1"], ["1a", "", "A"]),
        (formats.dns_subdomain, ["a", "a.b-c.d"], ["a..b", ".a", "a.", "a_b", "a" * 254]),
        (formats.full_domain_name, ["a.b", "a.b."], ["a", "a.", "a..b"]),
        (formats.qualified_name, ["A_b.c", "x.org/Name"], ["", "/a", "x/", "a/b/c", "X/a", "a" * 64, "a b"]),
        (formats.label_value, ["", "A_b.c-1"], ["-a", "a b", "a" * 64]),
        (formats.port_name, ["http", "a1-b"], ["", "80", "a--b", "-a", "a-", "Http", "a" * 16]),
        (formats.ip_problems, ["10.0.0.1", "::1", "FD00::1"], ["", "1.2.3", "1.2.3.04", "::ffff:1.2.3.4", "fe80::1%0"]),
        (formats.canonical_ip_problems, ["fd00::1"], ["FD00::1", "fd00:0::1"]),
        (
            formats.cidr_problems,
            ["10.0.0.0/8", "::/0"],
            ["10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/08", "a/8"],
        ),
        (
            formats.endpoint_ip_problems,
            ["10.0.0.1", "224.0.1.1", "fd00::1"],
            ["0.0.0.0", "::", "127.1.2.3", "::1", "169.254.0.1", "fe80::1", "224.0.0.251", "ff02::fb", "x"],
        ),
    ],
)
def test_formats(rule: Callable[[str], list[str]], good: list[str], bad: list[str]) -> None:
    assert [text for text in good if rule(text)] == []
    assert [text for text in bad if not rule(text)] == []


def pod(**spec: object) -> Json:
    containers = [{"name": "c", "image": "web"}]
    meta = {"name": "p", "namespace": "x"}
    return default_pod({"metadata": meta, "spec": {"containers": containers, **spec}})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"containers": []}, ["spec.containers: Required value"]),
        ({"containers": [{"image": "web"}]}, ["spec.containers[0].name: Required value"]),
        ({"containers": [{"name": "c"}]}, ["spec.containers[0].image: Required value"]),
        (
            {"containers": [{"name": "c", "image": "a"}, {"name": "c", "image": "b"}]},
            ['spec.containers[1].name: Duplicate value: "c"'],
        ),
        (
            {"containers": [{"name": "c", "image": "a", "ports": [{"name": "web", "containerPort": 70000}]}]},
            ["spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"],
        ),
        (
            {"containers": [{"name": "c", "image": "a", "ports": [{"containerPort": 1, "protocol": "ICMP"}]}]},
            ['spec.containers[0].ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"'],
        ),
        (
            {"containers": [{"name": "c", "image": "a", "volumeMounts": [{"name": "v", "mountPath": "/"}]}]},
            ['spec.containers[0].volumeMounts[0].name: Not found: "v"'],
        ),
        (
            {"restartPolicy": "Sometimes"},
            ['spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"'],
        ),
        ({"subdomain": "a.b"}, ['spec.subdomain: Invalid value: "a.b": must not contain dots']),
        ({"subdomain": "_"}, [f'spec.subdomain: Invalid value: "_": {LABEL} an alphanumeric character']),
    ],
)
def test_pods(spec: Json, expected: list[str]) -> None:
    assert told(validate_pod(pod(**spec))) == expected


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ({}, {"containers": [{"name": "c", "image": "web:2", "imagePullPolicy": "Always"}]}, False),
        ({}, {"nodeName": "n"}, False),
        ({"nodeName": "n"}, {"nodeName": "m"}, True),
        ({}, {"hostname": "h"}, True),
        ({}, {"tolerations": [{"key": "k"}]}, False),
        ({}, {"containers": [{"name": "d", "image": "web"}]}, True),
    ],
)
def test_what_may_change_in_a_pod(before: Json, after: Json, refused: bool) -> None:
    causes = validate_pod(pod(**{**before, **after}), pod(**before))
    assert [cause.field for cause in causes] == (["spec"] if refused else [])


@pytest.mark.parametrize(
    ("namespace", "about", "refused"),
    [("x", "x", False), ("x", "y", True), ("default", "", False), ("kube-system", "", False), ("x", "", True)],
)
def test_events_are_where_their_object_is(namespace: str, about: str, refused: bool) -> None:
    event = {"metadata": {"name": "e", "namespace": namespace}, "involvedObject": {"namespace": about}}
    assert bool(validate_event(event)) is refused
