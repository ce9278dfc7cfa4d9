"""The simulated kubelet's decisions."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.kinds import Json
from kdns.controlplane.pods import PodAddressError, PodAddresses, bound, is_waiting, running_status

CONFIG = ClusterConfig(pod_cidrs=(ip_network("10.244.0.0/29"),))
NOW = "2026-01-01T00:00:00Z"
READY = {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "c", "ready": True}]}


def pod(status: Json | None = None, meta: Json | None = None, **spec: object) -> Json:
    containers = [{"name": "c", "image": "i"}]
    return {
        "metadata": {"name": "p", **(meta or {})},
        "spec": {"containers": containers, **spec},
        "status": status or {},
    }


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (pod(), True),
        (pod({"phase": "Pending"}), True),
        (pod({"podIP": "10.0.0.1", **READY}), True),
        (pod({"podIP": "10.0.0.1", **READY}, nodeName="kdns"), False),
        (pod({"podIP": "10.0.0.1"}, nodeName="kdns"), True),
        (pod({"podIP": "10.0.0.1", "conditions": READY["conditions"]}, nodeName="kdns"), True),
        (pod({"phase": "Succeeded"}), False),
        (pod(meta={"deletionTimestamp": NOW}), False),
    ],
)
def test_who_waits(obj: Json, expected: bool) -> None:
    assert is_waiting(obj) is expected


def test_a_plain_pod_runs() -> None:
    status = running_status(pod(), CONFIG, ["10.244.0.5"], NOW)
    assert (status["phase"], status["podIP"], status["hostIP"]) == ("Running", "10.244.0.5", "10.244.0.1")
    assert {row["type"]: row["status"] for row in status["conditions"]} == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"), "True"
    )
    assert status["containerStatuses"][0]["state"] == {"running": {"startedAt": NOW}}
    assert bound(pod(), CONFIG)["spec"]["nodeName"] == "kdns"
    assert bound(pod(nodeName="mine"), CONFIG)["spec"]["nodeName"] == "mine"


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
    ],
)
def test_what_a_manifest_says_is_kept(status: Json, phase: str, ready: str) -> None:
    made = running_status(pod(status), CONFIG, ["10.244.0.5"], NOW)
    rows = {row["type"]: row for row in made["conditions"]}
    assert (made["phase"], rows["Ready"]["status"]) == (phase, ready)
    assert made["containerStatuses"][0]["ready"] is (ready == "True")
    assert made["podIP"] == status.get("podIP", "10.244.0.5")
    for row in status.get("conditions", []):
        assert rows[row["type"]] == row


def test_init_containers_are_done_and_sidecars_run() -> None:
    init = [{"name": "a", "image": "i"}, {"name": "b", "image": "i", "restartPolicy": "Always"}]
    rows = running_status(pod(initContainers=init), CONFIG, ["10.244.0.5"], NOW)["initContainerStatuses"]
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
