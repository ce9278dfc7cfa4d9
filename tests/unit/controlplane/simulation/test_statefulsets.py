"""StatefulSets: numbers, order, claims and revisions."""

from typing import Any

import pytest
from workload_cluster import Workbench, template, workload

from kdns.controlplane.apimachinery.inert import CLAIM
from kdns.controlplane.apimachinery.kinds import CONTROLLER_REVISION, DAEMON_SET, POD, STATEFUL_SET, Json
from kdns.controlplane.simulation.workloads.revisions import REVISION_HASH

CLAIM_TEMPLATE = {
    "metadata": {"name": "www"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def made(*, graceful: bool = False, **spec: Any) -> Workbench:
    bench = Workbench(graceful=graceful)
    bench.make(STATEFUL_SET, workload(**{"serviceName": "nginx", "replicas": 3, **spec}))
    return bench


def images(bench: Workbench) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in bench.pods()}


def status(bench: Workbench) -> Json:
    found: Json = bench.get(STATEFUL_SET, "web")["status"]
    return found


def test_a_pod_has_a_name_of_its_own() -> None:
    bench = made(replicas=1, ordinals={"start": 5}, volumeClaimTemplates=[CLAIM_TEMPLATE])
    bench.run_pods()
    (pod,) = bench.pods()
    revision = status(bench)["updateRevision"]
    assert pod["metadata"]["name"] == pod["spec"]["hostname"] == "web-5"
    assert pod["spec"]["subdomain"] == "nginx"
    assert pod["metadata"]["labels"] == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-5",
        "apps.kubernetes.io/pod-index": "5",
        REVISION_HASH: revision,
    }
    assert pod["spec"]["volumes"][0] == {"name": "www", "persistentVolumeClaim": {"claimName": "www-web-5"}}
    (claim,) = bench.all(CLAIM)
    assert claim["metadata"]["name"] == "www-web-5"
    assert claim["metadata"]["labels"] == {"app": "web"}
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert [event.message for event in bench.events] == ["Created pods: 1"]
    assert bench.names(CONTROLLER_REVISION) == [revision]


def test_in_order_each_waits_for_the_one_before() -> None:
    bench = made()
    bench.settle()
    assert bench.names() == ["web-0"]
    bench.report(bench.pods()[0], ready=False)
    bench.settle()
    assert bench.names() == ["web-0"]
    bench.report(bench.pods()[0])
    bench.settle()
    assert bench.names() == ["web-0", "web-1"]
    bench.run_pods()
    assert bench.names() == ["web-0", "web-1", "web-2"]
    counts = {name: status(bench)[name] for name in ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas")}
    assert counts == dict.fromkeys(counts, 3)


def test_in_order_the_highest_goes_first_and_each_waits_for_the_one_after() -> None:
    bench = made(graceful=True)
    bench.run_pods()
    bench.change(STATEFUL_SET, "web", replicas=1)
    bench.settle()
    assert [pod["metadata"]["name"] for pod in bench.pods()] == ["web-0", "web-1"]
    bench.vanish(bench.get(POD, "web-2"))
    bench.settle()
    assert [pod["metadata"]["name"] for pod in bench.pods()] == ["web-0"]


def test_in_parallel_nobody_waits() -> None:
    bench = made(podManagementPolicy="Parallel")
    bench.settle()
    assert bench.names() == ["web-0", "web-1", "web-2"]
    bench.change(STATEFUL_SET, "web", replicas=1)
    bench.settle()
    assert bench.names() == ["web-0"]


def test_a_rolling_update_goes_from_the_highest_down() -> None:
    bench = made()
    bench.run_pods()
    first = status(bench)["currentRevision"]
    bench.change(STATEFUL_SET, "web", template=template("i:2"))
    bench.settle()
    assert images(bench) == {"web-0": "i:1", "web-1": "i:1", "web-2": "i:2"}
    assert status(bench)["currentRevision"] == first != status(bench)["updateRevision"]
    assert (status(bench)["currentReplicas"], status(bench)["updatedReplicas"]) == (2, 1)
    bench.run_pods()
    assert set(images(bench).values()) == {"i:2"}
    assert status(bench)["currentRevision"] == status(bench)["updateRevision"]


@pytest.mark.parametrize(
    ("partition", "expected"), [(0, ["i:2", "i:2", "i:2"]), (2, ["i:1", "i:1", "i:2"]), (3, ["i:1", "i:1", "i:1"])]
)
@pytest.mark.parametrize("start", [0, 4])
def test_a_partition_keeps_lower_numbers_as_they_are(partition: int, expected: list[str], start: int) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
    bench = made(updateStrategy=rolling, ordinals={"start": start})
    bench.run_pods()
    bench.roll(STATEFUL_SET, "i:2")
    assert list(images(bench).values()) == expected
    for pod in bench.pods():
        bench.vanish(pod)
    bench.run_pods()
    assert list(images(bench).values()) == expected, "a Pod that comes back keeps its revision"


def test_on_delete_waits_for_people() -> None:
    bench = made(updateStrategy={"type": "OnDelete"})
    bench.run_pods()
    bench.roll(STATEFUL_SET, "i:2")
    assert set(images(bench).values()) == {"i:1"}
    bench.vanish(bench.get(POD, "web-1"))
    bench.run_pods()
    assert images(bench) == {"web-0": "i:1", "web-1": "i:2", "web-2": "i:1"}


def test_in_order_a_pod_that_is_not_ready_stops_an_update_and_conditions_of_others_stay() -> None:
    bench = made()
    bench.run_pods()
    conditions = [{"type": "Y", "status": "True", "lastTransitionTime": None}]
    obj = bench.get(STATEFUL_SET, "web")
    bench.put(STATEFUL_SET, {**obj, "status": {**obj["status"], "conditions": conditions}}, "status")
    bench.report(bench.get(POD, "web-0"), ready=False)
    bench.change(STATEFUL_SET, "web", template=template("i:2"))
    bench.settle()
    assert set(images(bench).values()) == {"i:1"}
    bench.report(bench.get(POD, "web-0"))
    bench.run_pods()
    assert set(images(bench).values()) == {"i:2"}
    assert status(bench)["conditions"] == conditions


def test_several_may_be_missing_at_a_time() -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    bench = made(updateStrategy=rolling, podManagementPolicy="Parallel", graceful=True)
    bench.run_pods()
    bench.change(STATEFUL_SET, "web", template=template("i:2"))
    bench.settle()
    assert [pod["metadata"]["name"] for pod in bench.pods()] == ["web-0"]


def test_a_failed_pod_is_made_anew() -> None:
    bench = made()
    bench.run_pods()
    before = bench.get(POD, "web-1")["metadata"]["uid"]
    bench.report(bench.get(POD, "web-1"), phase="Failed", ready=False)
    bench.run_pods()
    assert bench.names() == ["web-0", "web-1", "web-2"]
    assert bench.get(POD, "web-1")["metadata"]["uid"] != before


def test_revisions_are_numbered_used_again_and_limited() -> None:
    bench = made(replicas=1, revisionHistoryLimit=1)
    for image in ("i:1", "i:2", "i:1", "i:3", "i:4"):
        bench.roll(STATEFUL_SET, image)
    found = {
        each["data"]["spec"]["template"]["spec"]["containers"][0]["image"]: each["revision"]
        for each in bench.all(CONTROLLER_REVISION)
    }
    assert found == {"i:3": 4, "i:4": 5}


def test_claims_stay() -> None:
    policy = {"whenScaled": "Delete", "whenDeleted": "Delete"}
    bench = made(replicas=2, volumeClaimTemplates=[CLAIM_TEMPLATE], persistentVolumeClaimRetentionPolicy=policy)
    bench.run_pods()
    bench.change(STATEFUL_SET, "web", replicas=1)
    bench.run_pods()
    bench.delete(STATEFUL_SET, "web")
    bench.run_pods()
    names = ["www-web-0", "www-web-1"]
    assert (bench.names(), bench.names(CLAIM), bench.names(CONTROLLER_REVISION)) == ([], names, [])


def test_sets_of_one_name_and_template_have_revisions_of_their_own() -> None:
    bench = made(replicas=1)
    bench.node("n")
    bench.make(DAEMON_SET, workload())
    bench.run_pods()
    assert len(bench.names(CONTROLLER_REVISION)) == 2
    assert len(bench.pods()) == 2
