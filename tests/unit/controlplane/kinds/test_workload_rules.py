"""Workloads: defaults, validation with its messages, and scale."""

from typing import Any

import pytest
from served_kinds import CATALOGUE
from workload_cluster import Workbench, template, workload

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    Json,
    Kind,
)
from kdns.controlplane.server.registry import Request

BARE = {"selector": {"matchLabels": {"app": "web"}}, "template": template()}
TEMPLATE = "spec.template.spec"
LABELS = "spec.template.metadata.labels"


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        (
            DEPLOYMENT,
            {},
            {
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            },
        ),
        (DEPLOYMENT, {"strategy": {"type": "Recreate"}}, {"strategy": {"type": "Recreate"}}),
        (
            DEPLOYMENT,
            {"replicas": 0, "strategy": {"rollingUpdate": {"maxSurge": 1}}},
            {
                "replicas": 0,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}},
            },
        ),
        (REPLICA_SET, {}, {"replicas": 1}),
        (
            STATEFUL_SET,
            {},
            {
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            },
        ),
        (STATEFUL_SET, {"updateStrategy": {"type": "OnDelete"}}, {"updateStrategy": {"type": "OnDelete"}}),
        (
            DAEMON_SET,
            {},
            {
                "revisionHistoryLimit": 10,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            },
        ),
    ],
)
def test_defaults(kind: Kind, spec: Json, expected: Json) -> None:
    filled = CATALOGUE[kind].defaults({"metadata": {"name": "web"}, "spec": {**BARE, **spec}})["spec"]
    assert {name: filled[name] for name in expected} == expected
    assert filled["template"]["spec"]["restartPolicy"] == "Always"
    assert CATALOGUE[kind].defaults({"metadata": {"name": "web"}, "spec": filled})["spec"] == filled


def test_a_replication_controller_takes_the_labels_of_its_template() -> None:
    filled = CATALOGUE[REPLICATION_CONTROLLER].defaults({"metadata": {"name": "web"}, "spec": {"template": template()}})
    assert filled["spec"]["selector"] == filled["metadata"]["labels"] == {"app": "web"}
    assert filled["spec"]["replicas"] == 1


def refused(kind: Kind, spec: Json, bench: Workbench | None = None) -> list[str]:
    """Fields and messages of an error."""
    bench = bench or Workbench()
    try:
        if "web" in bench.names(kind):
            bench.change(kind, "web", **spec)
        else:
            obj = workload(**spec)
            if kind == REPLICATION_CONTROLLER:
                obj["spec"]["selector"] = spec.get("selector", {"app": "web"})
            bench.make(kind, {**obj, "spec": {key: value for key, value in obj["spec"].items() if value is not None}})
    except StatusError as error:
        return [f"{cause['field']}: {cause['message']}" for cause in error.body()["details"]["causes"]]
    return []


def podspec(**fields: Any) -> Json:
    return {"template": {**template(), "spec": {**template()["spec"], **fields}}}


NEGATIVE = "must be greater than or equal to 0"
ALL = (DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET)


@pytest.mark.parametrize("kind", [*ALL, REPLICATION_CONTROLLER], ids=lambda kind: str(kind.kind))
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        (
            podspec(restartPolicy="Never"),
            [f'{TEMPLATE}.restartPolicy: Unsupported value: "Never": supported values: "Always"'],
        ),
        (podspec(containers=[]), [f"{TEMPLATE}.containers: Required value"]),
        (podspec(containers=[{"name": "c"}]), [f"{TEMPLATE}.containers[0].image: Required value"]),
        (
            {"template": template(app="db")},
            ['spec.template.metadata.labels: Invalid value: {"app":"db"}: `selector` does not match template `labels`'],
        ),
        ({"minReadySeconds": -1}, [f"spec.minReadySeconds: Invalid value: -1: {NEGATIVE}"]),
    ],
)
def test_every_workload(kind: Kind, spec: Json, expected: list[str]) -> None:
    assert refused(kind, spec) == expected


def rolling(**fields: Any) -> Json:
    return {"type": "RollingUpdate", "rollingUpdate": fields}


SURGE = "spec.strategy.rollingUpdate"
DAEMONS = "spec.updateStrategy.rollingUpdate"


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        (DEPLOYMENT, {"replicas": -1}, [f"spec.replicas: Invalid value: -1: {NEGATIVE}"]),
        (DEPLOYMENT, {"selector": None}, ["spec.selector: Required value"]),
        (
            DAEMON_SET,
            {"selector": None, "template": None},
            ["spec.selector: Required value", f"{TEMPLATE}.containers: Required value"],
        ),
        (DEPLOYMENT, {"selector": {}}, ["spec.selector: Invalid value: {}: must not be empty"]),
        (
            DEPLOYMENT,
            {"selector": {"matchExpressions": [{"key": "app", "operator": "In"}]}},
            [
                (
                    "spec.selector.matchExpressions[0].values: Required value: "
                    "must be specified when `operator` is 'In' or 'NotIn'"
                )
            ],
        ),
        (
            STATEFUL_SET,
            {"selector": {"matchExpressions": [{"key": "app", "operator": "Is"}]}},
            ['spec.selector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator'],
        ),
        (
            STATEFUL_SET,
            {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}},
            ["spec.updateStrategy.rollingUpdate: Forbidden: may not be specified when the type is 'OnDelete'"],
        ),
        (
            STATEFUL_SET,
            {"podManagementPolicy": "Random"},
            ['spec.podManagementPolicy: Unsupported value: "Random": supported values: "OrderedReady", "Parallel"'],
        ),
        (
            DEPLOYMENT,
            {"strategy": {"type": "Fast"}},
            ['spec.strategy.type: Unsupported value: "Fast": supported values: "Recreate", "RollingUpdate"'],
        ),
        (
            DEPLOYMENT,
            {"strategy": rolling(maxSurge="0%", maxUnavailable=0)},
            [f"{SURGE}.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"],
        ),
        (DEPLOYMENT, {"strategy": rolling(maxSurge=-1)}, [f"{SURGE}.maxSurge: Invalid value: -1: {NEGATIVE}"]),
        (
            STATEFUL_SET,
            {"updateStrategy": rolling(partition=-1)},
            [f"{DAEMONS}.partition: Invalid value: -1: {NEGATIVE}"],
        ),
        (
            STATEFUL_SET,
            {
                "updateStrategy": rolling(maxUnavailable=0),
                "ordinals": {"start": -1},
                **podspec(activeDeadlineSeconds=5),
            },
            [
                f"{TEMPLATE}.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in StatefulSet is not Supported",
                f"spec.ordinals.start: Invalid value: -1: {NEGATIVE}",
                f"{DAEMONS}.maxUnavailable: Invalid value: 0: cannot be 0",
            ],
        ),
        (
            STATEFUL_SET,
            podspec(containers=[{"name": "c", "image": "i", "volumeMounts": [{"name": "www", "mountPath": "/"}]}]),
            [f'{TEMPLATE}.containers[0].volumeMounts[0].name: Not found: "www"'],
        ),
        (
            STATEFUL_SET,
            {
                **podspec(containers=[{"name": "c", "image": "i", "volumeMounts": [{"name": "w", "mountPath": "/"}]}]),
                "volumeClaimTemplates": [{"metadata": {"name": "w"}, "spec": {}}],
            },
            [],
        ),
        (
            DAEMON_SET,
            {"updateStrategy": rolling(maxSurge=0, maxUnavailable="0%")},
            [f"{DAEMONS}.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"],
        ),
        (
            DAEMON_SET,
            {"updateStrategy": rolling(maxSurge="101%", maxUnavailable=1)},
            [
                f'{DAEMONS}.maxSurge: Invalid value: "101%": must not be greater than 100%',
                f'{DAEMONS}.maxSurge: Invalid value: "101%": may not be set when maxUnavailable is non-zero',
            ],
        ),
        (
            DEPLOYMENT,
            {
                "strategy": rolling(maxSurge="150%", maxUnavailable="101%"),
                "minReadySeconds": 9,
                "progressDeadlineSeconds": 9,
            },
            [
                "spec.progressDeadlineSeconds: Invalid value: 9: must be greater than minReadySeconds",
                f'{SURGE}.maxUnavailable: Invalid value: "101%": must not be greater than 100%',
            ],
        ),
        (
            REPLICATION_CONTROLLER,
            {"template": None},
            ["spec.selector: Required value", "spec.template: Required value"],
        ),
    ],
)
def test_one_workload(kind: Kind, spec: Json, expected: list[str]) -> None:
    if kind == REPLICATION_CONTROLLER:
        spec = {**spec, "selector": None}
    assert refused(kind, spec) == expected


@pytest.mark.parametrize("kind", [DEPLOYMENT, REPLICA_SET, DAEMON_SET], ids=lambda kind: str(kind.kind))
def test_a_selector_is_for_life(kind: Kind) -> None:
    bench = Workbench()
    assert refused(kind, {}, bench) == []
    other = {"selector": {"matchLabels": {"app": "db"}}, "template": template(app="db")}
    assert refused(kind, other, bench) == [
        'spec.selector: Invalid value: {"matchLabels":{"app":"db"}}: field is immutable'
    ]


def test_few_fields_of_a_stateful_set_may_change() -> None:
    bench = Workbench()
    assert refused(STATEFUL_SET, {"serviceName": "a"}, bench) == []
    assert refused(STATEFUL_SET, {"replicas": 2, "template": template("i:2"), "minReadySeconds": 1}, bench) == []
    assert refused(STATEFUL_SET, {"serviceName": "b"}, bench) == [
        (
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
            "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' "
            "are forbidden"
        )
    ]


@pytest.mark.parametrize(
    "kind", [DEPLOYMENT, REPLICA_SET, STATEFUL_SET, REPLICATION_CONTROLLER], ids=lambda kind: str(kind.kind)
)
def test_scale(kind: Kind) -> None:
    bench = Workbench()
    assert refused(kind, {"replicas": 2}, bench) == []
    bench.run_pods()
    scale = bench.api.get(Request(kind, "default", "web", subresource="scale"))
    assert (scale["apiVersion"], scale["kind"], scale["spec"]) == ("autoscaling/v1", "Scale", {"replicas": 2})
    assert scale["status"] == {"replicas": 2, "selector": "app=web"}
    bench.api.update(Request(kind, "default", "web", subresource="scale"), {**scale, "spec": {"replicas": 3}})
    bench.run_pods()
    assert len(bench.pods()) == 3
    assert bench.get(kind, "web")["metadata"]["generation"] == 2
    with pytest.raises(StatusError, match="Invalid value: -1: must be greater than or equal to 0"):
        bench.api.update(Request(kind, "default", "web", subresource="scale"), {**scale, "spec": {"replicas": -1}})
    with pytest.raises(StatusError, match="the object has been modified"):
        bench.api.update(Request(kind, "default", "web", subresource="scale"), {**scale, "spec": {"replicas": 4}})
