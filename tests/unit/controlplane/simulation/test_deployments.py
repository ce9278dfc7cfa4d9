"""Deployments: ReplicaSets, revisions, conditions and what is told of a rollout."""

from typing import Any

import pytest
from workload_cluster import Workbench, template, workload

from kdns.controlplane.apimachinery.annotations import LAST_APPLIED, MANIFEST
from kdns.controlplane.apimachinery.errors import forbidden
from kdns.controlplane.apimachinery.kinds import DEPLOYMENT, POD, REPLICA_SET, Json
from kdns.controlplane.server.registry import Request
from kdns.controlplane.simulation.workloads.deployment import REVISION
from kdns.controlplane.simulation.workloads.pods import desired_replicas
from kdns.controlplane.storage.store import StoredObject

HASH = "pod-template-hash"


def made(**spec: Any) -> Workbench:
    """A Deployment with all its Pods ready."""
    bench = Workbench()
    bench.make(DEPLOYMENT, workload(**spec))
    bench.run_pods()
    return bench


def sets(bench: Workbench) -> dict[str, tuple[str, int]]:
    """image → (revision, size) of each ReplicaSet."""
    return {
        each["spec"]["template"]["spec"]["containers"][0]["image"]: (
            each["metadata"]["annotations"][REVISION],
            desired_replicas(each),
        )
        for each in bench.all(REPLICA_SET)
    }


def condition(bench: Workbench, kind: str) -> Json:
    rows = bench.get(DEPLOYMENT, "web")["status"]["conditions"]
    found: Json = next(row for row in rows if row["type"] == kind)
    return found


def messages(bench: Workbench) -> list[str]:
    """What deployment-controller told, without the ReplicaSets' hashes."""
    told = [event.message for event in bench.events if event.reason == "ScalingReplicaSet"]
    hashes = [each["metadata"]["name"] for each in sorted(bench.all(REPLICA_SET), key=_revision)]
    for number, name in enumerate(hashes, 1):
        told = [message.replace(name, f"#{number}") for message in told]
    return told


def _revision(replica_set: Json) -> int:
    return int(replica_set["metadata"]["annotations"][REVISION])


def test_a_replica_set_carries_the_hash_of_its_template() -> None:
    bench = made(replicas=3)
    (only,) = bench.all(REPLICA_SET)
    text = only["metadata"]["labels"][HASH]
    assert only["metadata"]["name"] == f"web-{text}"
    assert only["spec"]["selector"] == {"matchLabels": {"app": "web", HASH: text}}
    assert only["spec"]["template"]["metadata"]["labels"] == {"app": "web", HASH: text}
    assert {pod["metadata"]["labels"][HASH] for pod in bench.pods()} == {text}
    assert only["metadata"]["annotations"] == {REVISION: "1"}
    assert bench.get(DEPLOYMENT, "web")["metadata"]["annotations"][REVISION] == "1"
    assert bench.get(DEPLOYMENT, "web")["metadata"]["generation"] == 1
    again = made(replicas=1)
    assert again.names(REPLICA_SET) == [only["metadata"]["name"]]


def test_a_rollout_goes_step_by_step_and_is_told() -> None:
    bench = made(replicas=4, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}})
    bench.events.clear()
    bench.roll(DEPLOYMENT, "i:2")
    assert messages(bench) == [
        "Scaled up replica set #2 from 0 to 1",
        "Scaled down replica set #1 from 4 to 3",
        "Scaled up replica set #2 from 1 to 2",
        "Scaled down replica set #1 from 3 to 1",
        "Scaled up replica set #2 from 2 to 4",
        "Scaled down replica set #1 from 1 to 0",
    ]
    assert sets(bench) == {"i:1": ("1", 0), "i:2": ("2", 4)}


def test_recreate_ends_all_pods_before_new_ones_start() -> None:
    bench = Workbench(graceful=True)
    bench.make(DEPLOYMENT, workload(replicas=2, strategy={"type": "Recreate"}))
    bench.run_pods()
    bench.change(DEPLOYMENT, "web", template=template("i:2"))
    bench.settle()
    leaving = bench.all(POD)
    assert [bool(pod["metadata"].get("deletionTimestamp")) for pod in leaving] == [True, True]
    assert sets(bench) == {"i:1": ("1", 0)}
    bench.vanish(leaving[0])
    bench.settle()
    assert sets(bench) == {"i:1": ("1", 0)}
    bench.vanish(leaving[1])
    bench.run_pods()
    assert sets(bench) == {"i:1": ("1", 0), "i:2": ("2", 2)}


def test_an_old_template_takes_its_replica_set_up_again() -> None:
    bench = made(replicas=1)
    bench.roll(DEPLOYMENT, "i:2")
    bench.roll(DEPLOYMENT, "i:1")
    assert sets(bench) == {"i:1": ("3", 1), "i:2": ("2", 0)}
    assert bench.get(DEPLOYMENT, "web")["metadata"]["annotations"][REVISION] == "3"


@pytest.mark.parametrize(("limit", "left"), [(0, ["5"]), (2, ["3", "4", "5"]), (10, ["1", "2", "3", "4", "5"])])
def test_so_many_old_replica_sets_are_kept(limit: int, left: list[str]) -> None:
    bench = made(replicas=1, revisionHistoryLimit=limit)
    for number in range(2, 6):
        bench.roll(DEPLOYMENT, f"i:{number}")
    assert sorted(revision for revision, _ in sets(bench).values()) == left


def test_a_paused_deployment_is_scaled_but_not_rolled_out() -> None:
    bench = made(replicas=2)
    bench.change(DEPLOYMENT, "web", paused=True, template=template("i:2"))
    bench.run_pods()
    assert (condition(bench, "Progressing")["status"], condition(bench, "Progressing")["reason"]) == (
        "Unknown",
        "DeploymentPaused",
    )
    bench.change(DEPLOYMENT, "web", replicas=5)
    bench.run_pods()
    assert sets(bench) == {"i:1": ("1", 5)}
    bench.change(DEPLOYMENT, "web", paused=False)
    bench.settle(3)
    bench.run_pods()
    assert sets(bench) == {"i:1": ("1", 0), "i:2": ("2", 5)}
    assert condition(bench, "Progressing")["reason"] == "NewReplicaSetAvailable"


@pytest.mark.parametrize(
    ("replicas", "middle"),
    [
        (15, {"i:1": ("1", 8), "i:2": ("2", 10)}),
        (6, {"i:1": ("1", 4), "i:2": ("2", 5)}),
        (0, {"i:1": ("1", 0), "i:2": ("2", 0)}),
    ],
)
def test_scaling_in_the_middle_of_a_rollout(replicas: int, middle: dict[str, tuple[str, int]]) -> None:
    bench = made(replicas=10, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}})
    bench.change(DEPLOYMENT, "web", template=template("i:2"))
    bench.settle()
    assert sets(bench) == {"i:1": ("1", 8), "i:2": ("2", 5)}
    bench.change(DEPLOYMENT, "web", replicas=replicas)
    bench.settle()
    assert sets(bench) == middle
    bench.run_pods()
    assert sets(bench) == {"i:1": ("1", 0), "i:2": ("2", replicas)}


def test_conditions_on_the_way() -> None:
    bench = Workbench()
    bench.make(DEPLOYMENT, workload(replicas=4))
    bench.settle()
    assert condition(bench, "Available")["reason"] == "MinimumReplicasUnavailable"
    assert condition(bench, "Available")["status"] == "False"
    name = bench.names(REPLICA_SET)[0]
    assert condition(bench, "Progressing")["message"] == f'ReplicaSet "{name}" is progressing.'
    assert condition(bench, "Progressing")["reason"] == "ReplicaSetUpdated"
    bench.now_s += 5
    bench.run_pods()
    assert condition(bench, "Available")["message"] == "Deployment has minimum availability."
    assert condition(bench, "Progressing")["message"] == f'ReplicaSet "{name}" has successfully progressed.'
    since, updated = (condition(bench, "Progressing")[name] for name in ("lastTransitionTime", "lastUpdateTime"))
    assert (since, updated) == ("2023-11-14T22:13:20Z", "2023-11-14T22:13:25Z")
    for available in ("True", "False"):
        bench.report(bench.pods()[int(available == "True")], ready=False)
        bench.settle()
        assert condition(bench, "Available")["status"] == available, "a quarter may be missing"


def test_a_rollout_without_progress_times_out_and_can_still_end_well() -> None:
    bench = Workbench()
    bench.make(DEPLOYMENT, workload(replicas=1, progressDeadlineSeconds=60))
    bench.settle()
    bench.wait(59.0)
    assert condition(bench, "Progressing")["status"] == "True"
    bench.wait(3.0)
    row = condition(bench, "Progressing")
    assert (row["status"], row["reason"]) == ("False", "ProgressDeadlineExceeded")
    assert row["message"].endswith("has timed out progressing.")
    bench.run_pods()
    assert condition(bench, "Progressing")["reason"] == "NewReplicaSetAvailable"


def test_without_a_deadline_progress_is_not_judged() -> None:
    bench = made(replicas=1, progressDeadlineSeconds=2**31 - 1)
    assert [row["type"] for row in bench.get(DEPLOYMENT, "web")["status"]["conditions"]] == ["Available"]


def test_annotations_are_handed_on_but_not_what_ties_an_object_to_its_manifest() -> None:
    bench = Workbench()
    obj = workload(replicas=1)
    kept = {"kubernetes.io/change-cause": "because"}
    own = {MANIFEST: "a.yaml", LAST_APPLIED: "{}", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    obj["metadata"]["annotations"] = kept | own
    bench.make(DEPLOYMENT, obj)
    bench.run_pods()
    (only,) = bench.all(REPLICA_SET)
    assert only["metadata"]["annotations"] == kept | {REVISION: "1"}


def test_replica_sets_without_an_owner_are_adopted() -> None:
    bench = made(replicas=2)
    pods = bench.names()
    bench.delete(DEPLOYMENT, "web", propagationPolicy="Orphan")
    bench.settle()
    assert bench.names() == pods
    bench.make(DEPLOYMENT, workload(replicas=2))
    bench.run_pods()
    assert bench.names() == pods
    assert [row["name"] for row in bench.all(REPLICA_SET)[0]["metadata"]["ownerReferences"]] == ["web"]


def test_min_ready_seconds_reach_the_replica_set_and_hold_the_rollout() -> None:
    bench = made(replicas=2, minReadySeconds=10)
    bench.wait(11.0)
    bench.roll(DEPLOYMENT, "i:2")
    assert sets(bench)["i:1"] == ("1", 2)
    for _ in range(4):
        bench.wait(11.0)
        bench.run_pods()
    assert sets(bench) == {"i:1": ("1", 0), "i:2": ("2", 2)}
    assert {each["spec"]["minReadySeconds"] for each in bench.all(REPLICA_SET)} == {10}
    bench.change(DEPLOYMENT, "web", minReadySeconds=0)
    bench.run_pods()
    assert "minReadySeconds" not in next(each for each in bench.all(REPLICA_SET) if desired_replicas(each))["spec"]


def test_a_replica_set_that_cannot_be_made_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench()
    real, allowed = bench.api.create, [False]

    def create(request: Request, obj: Json) -> StoredObject:
        if request.kind == REPLICA_SET and not allowed[0]:
            raise forbidden(REPLICA_SET, obj["metadata"]["name"], "no more today")
        return real(request, obj)

    monkeypatch.setattr(bench.api, "create", create)
    bench.make(DEPLOYMENT, workload(replicas=1))
    bench.settle()
    allowed[0] = True
    bench.wait(1.0)
    bench.run_pods()
    (name,) = bench.names(REPLICA_SET)
    refused = f'Error creating: replicasets.apps "{name}" is forbidden: no more today'
    warnings = {(event.reason, event.message) for event in bench.events if event.type == "Warning"}
    assert warnings == {("FailedCreate", refused)}
    assert len(bench.pods()) == 1


def test_a_change_of_strategy_and_size_in_the_middle_of_a_rollout() -> None:
    bench = made(replicas=4)
    bench.change(DEPLOYMENT, "web", template=template("i:2"))
    bench.settle()
    bench.change(DEPLOYMENT, "web", strategy={"type": "Recreate"}, replicas=6)
    bench.run_pods()
    assert sets(bench) == {"i:1": ("1", 0), "i:2": ("2", 6)}
