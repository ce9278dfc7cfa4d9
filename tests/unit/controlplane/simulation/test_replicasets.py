"""ReplicaSets and ReplicationControllers: who is deleted first, who is adopted, what is told."""

from typing import Any

import pytest
from workload_cluster import START_S, Workbench, template, workload

from kdns.controlplane.apimachinery.kinds import POD, REPLICA_SET, REPLICATION_CONTROLLER, Json
from kdns.controlplane.server.registry import Request
from kdns.controlplane.simulation.workloads.replicaset import rank
from kdns.controlplane.storage.object_meta import timestamp

REPLICAS = (REPLICA_SET, REPLICATION_CONTROLLER)


def pod(node: str = "n1", ready: str = "True", age_s: float = 1000.0) -> Json:
    metadata = {"name": "p", "creationTimestamp": timestamp(START_S - age_s)}
    return {
        "metadata": metadata,
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def test_who_goes_first() -> None:
    last, third, second, first = pod(), pod(age_s=10.0), pod(ready="False"), pod(node="", age_s=9.0)
    assert rank(last) < rank(third) < rank(second) < rank(first)


def test_a_smaller_set_deletes_the_pods_that_are_not_ready() -> None:
    bench = Workbench()
    replicas(bench, REPLICA_SET, replicas=3)
    bench.run_pods()
    broken = bench.pods()[1]
    bench.report(broken, ready=False)
    bench.change(REPLICA_SET, "web", replicas=2)
    bench.settle()
    assert broken["metadata"]["name"] not in bench.names()


def replicas(bench: Workbench, kind: Any, **spec: Any) -> Json:
    obj = workload(**spec)
    if kind == REPLICATION_CONTROLLER:
        obj["spec"]["selector"] = {"app": "web"}
    return bench.make(kind, obj)


@pytest.mark.parametrize("kind", REPLICAS)
def test_sizes_are_followed_up_and_down(kind: Any) -> None:
    bench = Workbench()
    replicas(bench, kind, replicas=3)
    bench.run_pods()
    assert len(bench.pods()) == 3
    status = bench.get(kind, "web")["status"]
    wanted = dict.fromkeys(("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"), 3)
    leaving = {"terminatingReplicas": 0} if kind is REPLICA_SET else {}
    assert status == {**wanted, "observedGeneration": 1, **leaving}
    bench.change(kind, "web", replicas=1)
    bench.run_pods()
    assert len(bench.pods()) == 1
    assert bench.get(kind, "web")["status"]["observedGeneration"] == 2
    told = [(event.reason, event.message.partition(": ")[0]) for event in bench.events]
    assert told == [("SuccessfulCreate", "Created pods"), ("SuccessfulDelete", "Deleted pods")]


def test_a_pod_tells_who_made_it() -> None:
    bench = Workbench()
    made = replicas(bench, REPLICA_SET, replicas=1)
    bench.settle()
    (only,) = bench.pods()
    assert only["metadata"]["generateName"] == "web-"
    assert only["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "web",
            "uid": made["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_orphans_are_adopted_and_pods_with_other_labels_released() -> None:
    bench = Workbench()
    stray = bench.make(POD, {"metadata": {"name": "stray", **template()["metadata"]}, **_spec()})
    bench.make(POD, {"metadata": {"name": "other", "labels": {"app": "db"}}, **_spec()})
    replicas(bench, REPLICA_SET, replicas=2)
    bench.settle()
    assert len(bench.pods()) == 3
    stray = bench.get(POD, "stray")
    assert stray["metadata"]["ownerReferences"][0]["name"] == "web"
    bench.put(POD, {**stray, "metadata": {**stray["metadata"], "labels": {"app": "me"}}})
    bench.settle()
    assert "ownerReferences" not in bench.get(POD, "stray")["metadata"]
    assert len(bench.pods()) == 4


def test_a_pod_that_is_leaving_is_not_adopted() -> None:
    bench = Workbench(graceful=True)
    stray = bench.make(POD, {"metadata": {"name": "stray", **template()["metadata"]}, **_spec()})
    bench.report(stray)
    bench.delete(POD, "stray")
    replicas(bench, REPLICA_SET, replicas=1)
    bench.settle()
    assert "ownerReferences" not in bench.get(POD, "stray")["metadata"]


def test_a_pod_that_ended_is_replaced_and_stays() -> None:
    bench = Workbench()
    replicas(bench, REPLICA_SET, replicas=1)
    bench.run_pods()
    bench.report(bench.pods()[0], phase="Failed", ready=False)
    bench.run_pods()
    assert (len(bench.names()), len(bench.pods())) == (2, 1)


def test_pods_that_are_leaving_are_replaced_at_once_and_counted() -> None:
    bench = Workbench(graceful=True)
    replicas(bench, REPLICA_SET, replicas=2)
    bench.run_pods()
    bench.api.delete(Request(POD, "default", bench.pods()[0]["metadata"]["name"]))
    bench.settle()
    status = bench.get(REPLICA_SET, "web")["status"]
    assert (len(bench.pods()), status["replicas"], status["terminatingReplicas"]) == (2, 2, 1)


def test_pods_count_as_available_when_they_were_ready_for_long_enough() -> None:
    bench = Workbench()
    replicas(bench, REPLICA_SET, replicas=1, minReadySeconds=30)
    bench.run_pods()
    assert "availableReplicas" not in bench.get(REPLICA_SET, "web")["status"]
    bench.wait(29.0)
    assert "availableReplicas" not in bench.get(REPLICA_SET, "web")["status"]
    bench.wait(2.0)
    assert bench.get(REPLICA_SET, "web")["status"]["availableReplicas"] == 1


def _spec() -> Json:
    return {"spec": template()["spec"]}
