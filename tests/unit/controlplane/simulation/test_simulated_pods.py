"""The simulated kubelet's decisions."""

from datetime import datetime
from ipaddress import ip_network

import pytest

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.kinds.pod.pod import with_condition
from kdns.controlplane.simulation.nodes.pod_addresses import PodAddressError, PodAddresses
from kdns.controlplane.simulation.nodes.pod_status import is_waiting, removal_s, running_status, succeeded_status

CONFIG = ClusterConfig(pod_cidrs=(ip_network("10.244.0.0/29"),))
NOW = "2026-01-01T00:00:00Z"
READY = {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "c", "ready": True}]}


def pod(status: Json | None = None, meta: Json | None = None, **spec: object) -> Json:
    return {
        "metadata": {"name": "p", **(meta or {})},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
        "status": status or {},
    }


JOB: Json = {
    "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]
}
GOING: Json = {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}
GATED: Json = {"readinessGates": [{"conditionType": "example.com/open"}]}


def gates(ready: str, contained: str, open_: str = "") -> Json:
    rows = {"Ready": ready, "ContainersReady": contained, **({"example.com/open": open_} if open_ else {})}
    return {"podIP": "10.0.0.1", **READY, "conditions": [{"type": k, "status": v} for k, v in rows.items()]}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (pod(), False),
        (pod(nodeName="kdns"), True),
        (pod({"phase": "Pending"}, nodeName="kdns"), True),
        (pod({"podIP": "10.0.0.1", **READY}), False),
        (pod({"podIP": "10.0.0.1", **READY}, nodeName="kdns"), False),
        (pod({"podIP": "10.0.0.1"}, nodeName="kdns"), True),
        (pod({"podIP": "10.0.0.1", "conditions": READY["conditions"]}, nodeName="kdns"), True),
        (pod({"phase": "Succeeded"}, nodeName="kdns"), False),
        (pod(meta=GOING), False),
        (pod(meta=GOING, nodeName="kdns"), True),
        (pod({"podIP": "10.0.0.1", **READY}, JOB, nodeName="kdns"), True),
        (pod({"podIP": "10.0.0.1", **READY, "phase": "Succeeded"}, JOB, nodeName="kdns"), False),
        (pod(gates("True", "True"), **GATED, nodeName="kdns"), True),
        (pod(gates("False", "True"), **GATED, nodeName="kdns"), False),
        (pod(gates("False", "True", "True"), **GATED, nodeName="kdns"), True),
        (pod(gates("True", "True", "True"), **GATED, nodeName="kdns"), False),
        (pod(gates("False", "False", "True"), **GATED, nodeName="kdns"), False),
    ],
)
def test_who_waits(obj: Json, expected: bool) -> None:
    assert is_waiting(obj) is expected


@pytest.mark.parametrize(
    ("status", "phase", "ready"),
    [
        ({"conditions": [{"type": "Ready", "status": "False"}]}, "Pending", "False"),
        (
            {"phase": "Running", "conditions": [{"type": "Ready", "status": "False", "reason": "mine"}]},
            "Running",
            "False",
        ),
        ({"phase": "Unknown"}, "Unknown", "False"),
        ({"phase": "Running", "podIP": "10.9.9.9"}, "Running", "True"),
        ({"containerStatuses": [{"name": "c", "ready": True, "restartCount": 7}]}, "Running", "True"),
    ],
)
def test_what_a_manifest_says_is_kept(status: Json, phase: str, ready: str) -> None:
    made = running_status(pod(status), ["10.244.0.1"], ["10.244.0.5"], NOW)
    rows = {row["type"]: row for row in made["conditions"]}
    assert (made["phase"], rows["Ready"]["status"]) == (phase, ready)
    assert made["containerStatuses"][0]["ready"] is (ready == "True")
    assert made["containerStatuses"][0]["restartCount"] == (7 if "containerStatuses" in status else 0)
    assert len(made["conditions"]) == len(rows)
    assert made["podIP"] == status.get("podIP", "10.244.0.5")
    for row in status.get("conditions", []):
        assert rows[row["type"]] == row


def test_init_containers_are_done_and_sidecars_run() -> None:
    init = [{"name": "a", "image": "i"}, {"name": "b", "image": "i", "restartPolicy": "Always"}]
    rows = running_status(pod(initContainers=init), ["10.244.0.1"], ["10.244.0.5"], NOW)["initContainerStatuses"]
    assert [next(iter(row["state"])) for row in rows] == ["terminated", "running"]


def test_a_small_range_runs_out_and_comes_back() -> None:
    addresses = PodAddresses(CONFIG, lambda _: 0)
    for number in range(2, 7):
        given = addresses.choose()
        assert given == [f"10.244.0.{number}"]
        addresses.follow(f"uid-{number}", pod({"podIP": given[0]}))
    with pytest.raises(PodAddressError, match=r"no address is left in 10\.244\.0\.0/29"):
        addresses.choose()
    addresses.follow("uid-4", pod({"podIP": "10.244.0.4", "phase": "Succeeded"}))
    assert addresses.choose() == ["10.244.0.4"]


def test_what_is_no_address_takes_none() -> None:
    addresses = PodAddresses(CONFIG, lambda _: 0)
    for status in ({"podIP": "soon"}, None):
        addresses.follow("one", pod(status) if status else None)
        assert addresses.choose() == ["10.244.0.2"]


def test_an_address_from_a_manifest_is_not_given_again() -> None:
    addresses = PodAddresses(CONFIG, lambda _: 0)
    addresses.follow("one", pod({"podIP": "10.244.0.2"}))
    addresses.follow("two", pod({"podIP": "10.244.0.2"}))
    addresses.follow("one", None)
    assert addresses.choose() == ["10.244.0.3"]
    addresses.follow("two", None)
    assert addresses.choose() == ["10.244.0.2"]


def sleeping(*seconds: int) -> Json:
    containers = [
        {"name": f"c{n}", "image": "i", "lifecycle": {"preStop": {"sleep": {"seconds": each}}}}
        for n, each in enumerate(seconds)
    ]
    return pod(meta=GOING, containers=containers)


@pytest.mark.parametrize(
    ("obj", "after_s"),
    [(pod(meta=GOING), 0), (sleeping(5), 5), (sleeping(5, 9, 1), 9), (sleeping(120), 30), (sleeping(0), 0)],
)
def test_a_pod_stays_as_long_as_its_pre_stop_sleeps(obj: Json, after_s: int) -> None:
    assert removal_s(obj) == datetime.fromisoformat(NOW).timestamp() + after_s


def test_gates_decide_readiness_from_the_start() -> None:
    made = running_status(pod(**GATED), ["10.244.0.1"], ["10.244.0.5"], NOW)
    rows = {row["type"]: row for row in made["conditions"]}
    assert (rows["ContainersReady"]["status"], rows["Ready"]["status"]) == ("True", "False")
    assert rows["Ready"]["reason"] == "ReadinessGatesNotReady"
    assert rows["Ready"]["message"] == 'closed readiness gates: "example.com/open" is missing'


def test_a_pod_that_had_no_node_is_scheduled_now() -> None:
    waiting = with_condition(pod(), "PodScheduled", "False", NOW, reason="Unschedulable", message="0/0 nodes")
    assert (
        with_condition(waiting, "PodScheduled", "False", "later", reason="Unschedulable", message="0/0 nodes")
        is waiting
    )
    made = running_status(waiting, ["10.244.0.1"], ["10.244.0.5"], NOW)
    assert {row["type"]: row["status"] for row in made["conditions"]}["PodScheduled"] == "True"
    assert made["phase"] == "Running"


def test_work_that_is_done() -> None:
    running = pod(running_status(pod(), ["10.244.0.1"], ["10.244.0.5"], NOW))
    made = succeeded_status(running, NOW)
    rows = {row["type"]: (row["status"], row.get("reason")) for row in made["conditions"]}
    assert made["phase"] == "Succeeded"
    assert (rows["Ready"], rows["Initialized"]) == (("False", "PodCompleted"), ("True", None))
    assert made["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
