"""Indexes of controllers hold nothing of deleted objects."""

from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, DEPLOYMENT, NODE, POD, REPLICA_SET, Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.reconciler import Change
from kdns.controlplane.gc.owners import Owners
from kdns.controlplane.simulation.nodes.kubelet import Kubelet
from kdns.controlplane.simulation.workloads.deployment import Deployments
from kdns.controlplane.storage.store import stored_object_of

KEY = ("x", "a")
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u1", "controller": True}
OBJECT: Json = {
    "metadata": {"name": "a", "namespace": "x", "uid": "u", "labels": {"a": "b"}},
    "spec": {"selector": {"matchLabels": {"a": "b"}}},
}


def test_pods_on_nodes() -> None:
    kubelet, others = Kubelet(ClusterConfig(), lambda _: 0), [("x", "b"), ("y", "a")]
    for key in (KEY, *others):
        kubelet.observe(Change(POD, key, {**OBJECT, "spec": {"nodeName": "n"}}, 1))
    kubelet.observe(Change(NODE, ("", "n"), None, 2))
    assert kubelet._orphans == {KEY, *others}  # noqa: SLF001 - what leaks is not shown
    for key in (KEY, *others):
        kubelet.observe(Change(POD, key, None, 3))
    assert [*kubelet._orphans, *kubelet._pods] == []  # noqa: SLF001 - the same


def test_workloads() -> None:
    workloads, fresh = Deployments(), Deployments()
    workloads.observe(Change(DEPLOYMENT, KEY, OBJECT, 1))
    assert workloads.observe(Change(REPLICA_SET, KEY, OBJECT, 2)) == {KEY}
    workloads.observe(Change(REPLICA_SET, KEY, None, 3))
    workloads.observe(Change(DEPLOYMENT, KEY, None, 4))
    assert vars(workloads) == vars(fresh)


def test_owners() -> None:
    owners = Owners()
    version = stored_object_of(CONFIG_MAP, KEY, {"metadata": {"name": "a", "ownerReferences": [OWNER]}}, 1)
    owners.track(None, version)
    assert owners.dependents("u1") == [(CONFIG_MAP, KEY)]
    owners.track(version, None)
    assert vars(owners) == vars(Owners())
