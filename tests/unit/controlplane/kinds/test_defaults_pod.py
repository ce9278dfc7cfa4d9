"""Defaults of Pods, and QoS classes."""

import pytest

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.pod.defaults import admitted, default_pod, qos_class


def only_container(**fields: object) -> Json:
    made: Json = default_pod({"spec": {"containers": [{"name": "c", **fields}]}})["spec"]["containers"][0]
    return made


def test_what_kubectl_shows() -> None:
    assert default_pod({"spec": {"containers": [{"name": "c", "image": "web:1"}]}}) == {
        "spec": {
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler",
            "enableServiceLinks": True,
            "securityContext": {},
            "containers": [
                {
                    "name": "c",
                    "image": "web:1",
                    "imagePullPolicy": "IfNotPresent",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "resources": {},
                }
            ],
        }
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("web", "Always"),
        ("web:latest", "Always"),
        ("web:1.2", "IfNotPresent"),
        ("registry:5000/web", "Always"),
        ("registry:5000/web:2", "IfNotPresent"),
        ("web@sha256:0123", "IfNotPresent"),
    ],
)
def test_pull_policy(image: str, policy: str) -> None:
    assert only_container(image=image)["imagePullPolicy"] == policy


HTTP = {"path": "/", "port": 80, "scheme": "HTTP"}
PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


@pytest.mark.parametrize(
    ("field", "given", "expected"),
    [
        ("ports", [{"containerPort": 80}], [{"containerPort": 80, "protocol": "TCP"}]),
        (
            "readinessProbe",
            {"httpGet": {"port": 80}},
            {"httpGet": HTTP, **PROBE},
        ),
        (
            "env",
            [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}],
        ),
        ("resources", {"limits": {"cpu": "1"}}, {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}),
        (
            "livenessProbe",
            {"grpc": {"port": 80, "service": None}},
            {"grpc": {"port": 80, "service": ""}, **PROBE},
        ),
        (
            "lifecycle",
            {"preStop": {"httpGet": {"port": 80}}, "stopSignal": "SIGTERM"},
            {"preStop": {"httpGet": HTTP}, "stopSignal": "SIGTERM"},
        ),
    ],
)
def test_container_fields(field: str, given: object, expected: object) -> None:
    assert only_container(**{field: given})[field] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"emptyDir": {}}),
        ({"secret": {}}, {"secret": {"defaultMode": 420}}),
        ({"hostPath": {"path": "/x"}}, {"hostPath": {"path": "/x", "type": ""}}),
        (
            {"image": {"reference": "a:1"}},
            {"image": {"reference": "a:1", "pullPolicy": "IfNotPresent"}},
        ),
        (
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": []}}}},
            {
                "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": [], "volumeMode": "Filesystem"}}},
            },
        ),
        (
            {"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "b"}}, {"path": "c"}]}},
            {
                "downwardAPI": {
                    "defaultMode": 420,
                    "items": [{"path": "a", "fieldRef": {"apiVersion": "v1", "fieldPath": "b"}}, {"path": "c"}],
                },
            },
        ),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "a"}}]}},
            {
                "projected": {
                    "defaultMode": 420,
                    "sources": [{"serviceAccountToken": {"path": "a", "expirationSeconds": 3600}}],
                },
            },
        ),
    ],
)
def test_volumes(given: Json, expected: Json) -> None:
    filled = default_pod({"spec": {"volumes": [{"name": "v", **given}]}})
    assert filled["spec"]["volumes"] == [{"name": "v", **expected}]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"podIP": "1.2.3.4"}, {"podIP": "1.2.3.4", "podIPs": [{"ip": "1.2.3.4"}]}),
        ({"podIPs": [{"ip": "1.2.3.4"}]}, {"podIP": "1.2.3.4", "podIPs": [{"ip": "1.2.3.4"}]}),
        ({"podIP": "5.6.7.8", "podIPs": [{"ip": "1.2.3.4"}]}, {"podIP": "5.6.7.8", "podIPs": [{"ip": "5.6.7.8"}]}),
    ],
)
def test_one_and_many_addresses_are_in_step(given: Json, expected: Json) -> None:
    assert default_pod({"spec": {}, "status": given})["status"] == expected


FULL = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"limits": FULL}], "Guaranteed"),
        ([{"limits": FULL, "requests": {"cpu": "500m", "memory": "1Gi"}}], "Burstable"),
        ([{"requests": FULL}], "Burstable"),
        ([{"limits": FULL}, {}], "Burstable"),
    ],
)
def test_qos(resources: list[Json], expected: str) -> None:
    pod = {"spec": {"containers": [{"name": str(index), "resources": row} for index, row in enumerate(resources)]}}
    assert qos_class(default_pod(pod)) == expected


FAILING = [
    {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for why in ("not-ready", "unreachable")
]
EVERYTHING = {"operator": "Exists"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("given", "account", "tolerations"),
    [
        ({}, "default", FAILING),
        ({"serviceAccountName": "robot"}, "robot", FAILING),
        ({"serviceAccount": "robot"}, "robot", FAILING),
        ({"tolerations": [EVERYTHING]}, "default", [EVERYTHING]),
        ({"tolerations": [NOT_READY]}, "default", [NOT_READY, FAILING[1]]),
    ],
)
def test_what_admission_adds(given: Json, account: str, tolerations: list[Json]) -> None:
    spec = admitted({"metadata": {}, "spec": given}, None)["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == (account, account)
    assert spec["tolerations"] == tolerations
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")


def test_a_pod_that_replaces_another_needs_not_repeat_what_admission_added() -> None:
    given = {"serviceAccountName": "robot", "serviceAccount": "robot"}
    old = admitted({"metadata": {}, "spec": {**given, "priority": 7}}, None)
    assert admitted({"metadata": {}, "spec": given}, old) == old
