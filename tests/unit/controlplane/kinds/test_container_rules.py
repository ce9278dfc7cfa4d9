"""The rules of containers: mounts, resources, probes and hooks, with the messages and order of kube-apiserver."""

import pytest

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.pod.defaults import default_pod
from kdns.controlplane.kinds.pod.validation import validate_pod

AT = "spec.containers[0]"
GET = {"httpGet": {"port": 80}}
FORBIDDEN = "Forbidden: may not be set for init containers without restartPolicy=Always"
PORT = "must be between 1 and 65535, inclusive"


def told(*containers: Json, **spec: object) -> list[str]:
    named = [{"name": f"c{index}", "image": "i", **each} for index, each in enumerate(containers)]
    pod = {"metadata": {"name": "p", "namespace": "x"}, "spec": {"containers": named, **spec}}
    return [f"{cause.field}: {cause.message}" for cause in validate_pod(default_pod(pod))]


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ([{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b", "subPath": "c/d"}], []),
        ([{"name": "v"}], ["volumeMounts[0].mountPath: Required value"]),
        ([{"mountPath": "/a"}], ["volumeMounts[0].name: Required value", 'volumeMounts[0].name: Not found: ""']),
        ([{"name": "x", "mountPath": "/a"}], ['volumeMounts[0].name: Not found: "x"']),
        (
            [{"name": "v", "mountPath": "/a"}, {"name": "x", "mountPath": "/a"}],
            ['volumeMounts[1].name: Not found: "x"', 'volumeMounts[1].mountPath: Invalid value: "/a": must be unique'],
        ),
        (
            [{"name": "v", "mountPath": "/a", "subPath": "/b/../c"}],
            [
                'volumeMounts.subPath: Invalid value: "/b/../c": must be a relative path',
                "volumeMounts.subPath: Invalid value: \"/b/../c\": must not contain '..'",
            ],
        ),
    ],
)
def test_mounts(mounts: list[Json], expected: list[str]) -> None:
    assert told({"volumeMounts": mounts}, volumes=[{"name": "v"}]) == [f"{AT}.{each}" for each in expected]


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": 1, "memory": "1024Mi"}, []),
        ({"cpu": "2"}, {"memory": "1Gi"}, []),
        ({"cpu": "2"}, {"cpu": "1"}, ['requests: Invalid value: "2": must be less than or equal to cpu limit of 1']),
        (
            {"cpu": "2000m", "memory": "1.5Gi"},
            {"cpu": "1500m", "memory": "1G"},
            [
                'requests: Invalid value: "2": must be less than or equal to cpu limit of 1500m',
                'requests: Invalid value: "1536Mi": must be less than or equal to memory limit of 1G',
            ],
        ),
        (
            {},
            {"cpu": "-1"},
            [
                'limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
                'requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
            ],
        ),
        (
            {"cpus": "1"},
            {},
            [
                'requests[cpus]: Invalid value: "cpus": must be a standard resource type or fully qualified',
                'requests[cpus]: Invalid value: "cpus": must be a standard resource for containers',
            ],
        ),
        ({}, {"example.com/gpu": 1}, []),
        ({"example.com/gpu": 1}, {}, ["limits: Required value: Limit must be set for non overcommitable resources"]),
        (
            {"example.com/gpu": "1"},
            {"example.com/gpu": "2"},
            ['requests: Invalid value: "1": must be equal to example.com/gpu limit of 2'],
        ),
        ({"hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi", "cpu": "1"}, []),
        (
            {"example.com/gpu": "500m"},
            {"example.com/gpu": "0.5"},
            [
                'limits[example.com/gpu]: Invalid value: "500m": must be an integer',
                'requests[example.com/gpu]: Invalid value: "500m": must be an integer',
            ],
        ),
    ],
)
def test_resources(requests: Json, limits: Json, expected: list[str]) -> None:
    found = told({"resources": {"requests": requests, "limits": limits}})
    assert found == [f"{AT}.resources.{each}" for each in expected]


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"livenessProbe": GET, "readinessProbe": {"exec": {"command": ["true"]}}, "startupProbe": GET}, []),
        ({"readinessProbe": {"periodSeconds": 5}}, ["readinessProbe: Required value: must specify a handler type"]),
        ({"lifecycle": {"preStop": {}}}, ["lifecycle.preStop: Required value: must specify a handler type"]),
        (
            {"livenessProbe": {**GET, "tcpSocket": {"port": 80}, "exec": {}}},
            [
                "livenessProbe.exec.command: Required value",
                "livenessProbe.httpGet: Forbidden: may not specify more than 1 handler type",
                "livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
            ],
        ),
        (
            {"livenessProbe": {"httpGet": {"scheme": "FTP"}, "successThreshold": 2, "timeoutSeconds": -1}},
            [
                f"livenessProbe.httpGet.port: Invalid value: 0: {PORT}",
                'livenessProbe.httpGet.scheme: Unsupported value: "FTP": supported values: "HTTP", "HTTPS"',
                "livenessProbe.timeoutSeconds: Invalid value: -1: must be greater than or equal to 0",
                "livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        ),
        ({"readinessProbe": {**GET, "successThreshold": 2}}, []),
        (
            {"readinessProbe": {"grpc": {"port": 70000}, "terminationGracePeriodSeconds": 0}},
            [
                f"readinessProbe.grpc.port: Invalid value: 70000: {PORT}",
                "readinessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
                "readinessProbe.terminationGracePeriodSeconds: Invalid value: 0: must not be set for readinessProbes",
            ],
        ),
        ({"lifecycle": {"preStop": {"sleep": {"seconds": 30}}}}, []),
        (
            {"lifecycle": {"postStart": {"sleep": {"seconds": 31}}}},
            [
                (
                    "lifecycle.postStart.sleep: Invalid value: 31: "
                    "must be non-negative and less than terminationGracePeriodSeconds (30)"
                )
            ],
        ),
    ],
)
def test_probes_and_hooks(container: Json, expected: list[str]) -> None:
    assert told(container) == [f"{AT}.{each}" for each in expected]


def test_init_containers_are_probed_if_they_stay() -> None:
    plain = {"name": "a", "image": "i", "lifecycle": {"preStop": {"exec": {"command": ["x"]}}}, "startupProbe": GET}
    stays = {"name": "b", "image": "i", "restartPolicy": "Always", "startupProbe": {}}
    assert told({}, initContainers=[plain, stays]) == [
        f"spec.initContainers[0].lifecycle: {FORBIDDEN}",
        f"spec.initContainers[0].startupProbe: {FORBIDDEN}",
        "spec.initContainers[1].startupProbe: Required value: must specify a handler type",
    ]


def test_volumes_come_first_then_containers_then_init_containers() -> None:
    twice = {"name": "c0", "image": "i"}
    bad = {"imagePullPolicy": "Now", "volumeMounts": [{"name": "x", "mountPath": "/"}], "ports": [{"containerPort": 1}]}
    assert told(bad, volumes=[{}], initContainers=[twice]) == [
        "spec.volumes[0].name: Required value",
        f'{AT}.volumeMounts[0].name: Not found: "x"',
        f'{AT}.imagePullPolicy: Unsupported value: "Now": supported values: "Always", "IfNotPresent", "Never"',
        'spec.initContainers[0].name: Duplicate value: "c0"',
    ]
