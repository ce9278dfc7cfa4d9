"""Indexes of controllers hold nothing of what is gone: a namespace that came and went leaves no trace."""

from __future__ import annotations

from kdns.controlplane.disruption import Disruptions
from kdns.controlplane.kinds import CONFIG_MAP, DEPLOYMENT, POD, REPLICA_SET, Json
from kdns.controlplane.owners import Owners
from kdns.controlplane.watch import stored
from kdns.controlplane.workloads import Workloads

KEY = ("x", "a")
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u1", "controller": True}
OBJECT: Json = {
    "metadata": {"name": "a", "namespace": "x", "uid": "u", "labels": {"a": "b"}},
    "spec": {"selector": {"matchLabels": {"a": "b"}}},
}


def test_disruptions() -> None:
    controller = Disruptions()
    controller.learn(POD, KEY, OBJECT, 1)
    controller.learn(POD, KEY, None, 2)
    assert vars(controller) == vars(Disruptions())


def test_workloads() -> None:
    workloads, fresh = (Workloads(DEPLOYMENT, REPLICA_SET) for _ in range(2))
    workloads.learn(DEPLOYMENT, KEY, OBJECT)
    workloads.learn(REPLICA_SET, KEY, OBJECT)
    assert workloads.concerned(OBJECT) == {KEY}
    workloads.learn(REPLICA_SET, KEY, None)
    workloads.learn(DEPLOYMENT, KEY, None)
    assert vars(workloads) == vars(fresh)


def test_owners() -> None:
    owners = Owners()
    version = stored(CONFIG_MAP, KEY, {"metadata": {"name": "a", "ownerReferences": [OWNER]}}, 1)
    owners.track(None, version)
    assert owners.dependents("u1") == [(CONFIG_MAP, KEY)]
    owners.track(version, None)
    assert vars(owners) == vars(Owners())
