"""Heartbeats of simulated kubelets: Leases and status, against a real Api with the test's clock."""

from __future__ import annotations

from collections import Counter

from stepping import START_S, Stepper

from kdns.controlplane.controllers.nodes.heartbeats import Heartbeats
from kdns.controlplane.controllers.nodes.kubelet import Kubelet
from kdns.controlplane.meta.cluster_config import ClusterConfig
from kdns.controlplane.meta.inert import LEASE
from kdns.controlplane.meta.kinds import NODE, Json
from kdns.controlplane.server.request import Request
from kdns.controlplane.storage.object_meta import timestamp

UNKNOWN = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status.", "status": "Unknown"}


class Nodes:
    """Kubelets and their heartbeats; `pass_s` lets time pass, and counts the writes of each Node."""

    def __init__(self) -> None:
        self.cluster, self.heartbeats = Stepper(ClusterConfig()), Heartbeats()
        self.cluster.run(Kubelet(ClusterConfig(), lambda _: 0), self.heartbeats)

    def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.cluster.now_s += 1
            for node in self.cluster.api.list(Request(NODE)).items:
                self.cluster.look(self.heartbeats, node["metadata"]["name"])
            self.cluster.settle()

    def make(self, name: str, **status: object) -> None:
        self.cluster.api.create(Request(NODE), {"metadata": {"name": name}, "status": status})
        self.cluster.settle()

    def revision(self, name: str) -> int:
        return int(self.cluster.api.get(Request(LEASE, "kube-node-lease", name))["metadata"]["resourceVersion"])

    def conditions(self, name: str) -> dict[str, Json]:
        return {row["type"]: row for row in self.cluster.api.get(Request(NODE, "", name))["status"]["conditions"]}

    def report(self, name: str, **ready: str) -> None:
        """Change the condition Ready, as somebody else."""
        node = self.cluster.api.get(Request(NODE, "", name))
        for row in node["status"]["conditions"]:
            if row["type"] == "Ready":
                row.update(ready)
        self.cluster.api.update(Request(NODE, "", name, subresource="status"), node)
        self.cluster.settle()


def test_a_node_made_by_hand_has_conditions_and_a_lease() -> None:
    nodes = Nodes()
    nodes.make("a", conditions=[{"type": "NetworkUnavailable", "status": "False"}])
    rows = nodes.conditions("a")
    assert {kind: (row["status"], row.get("reason")) for kind, row in rows.items()} == {
        "NetworkUnavailable": ("False", None),
        "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure"),
        "PIDPressure": ("False", "KubeletHasSufficientPID"),
        "Ready": ("True", "KubeletReady"),
    }
    assert rows["Ready"]["message"] == "kubelet is posting ready status"
    lease = nodes.cluster.api.get(Request(LEASE, "kube-node-lease", "a"))
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == ("a", 40)
    assert [owner["kind"] for owner in lease["metadata"]["ownerReferences"]] == ["Node"]


def test_each_node_renews_every_10_s_and_reports_every_5_minutes() -> None:
    nodes = Nodes()
    names = [f"n{number}" for number in range(8)]
    for name in names:
        nodes.make(name)
    renewed, reported, seconds = Counter[str](), Counter[str](), Counter[int]()
    for _ in range(300):
        before = {name: (nodes.revision(name), nodes.conditions(name)) for name in names}
        nodes.pass_s(1)
        for name in names:
            is_renewed = nodes.revision(name) != before[name][0]
            renewed[name] += is_renewed
            seconds[int(nodes.cluster.now_s - START_S) % 10] += is_renewed
            reported[name] += nodes.conditions(name) != before[name][1]
    assert set(renewed.values()) == {30}
    assert set(reported.values()) == {1}
    assert sum(map(bool, seconds.values())) == 4, "spread"


def test_a_node_that_was_taken_for_lost_is_ready_again_and_one_that_fails_is_silent() -> None:
    nodes = Nodes()
    nodes.make("a")
    nodes.report("a", **UNKNOWN)
    assert nodes.conditions("a")["Ready"]["status"] == "True"
    nodes.report("a", status="False", reason="Failed")
    renewed = nodes.revision("a")
    nodes.pass_s(310)
    assert (nodes.conditions("a")["Ready"]["reason"], nodes.revision("a")) == ("Failed", renewed)
    nodes.report("a", status="True")
    assert nodes.revision("a") > renewed


def test_a_clock_that_is_set_back_stops_no_heartbeat() -> None:
    """Who observes that a Lease changes, as kube-controller-manager does, would take the Node for lost."""
    nodes = Nodes()
    nodes.make("a")
    nodes.pass_s(10)
    nodes.cluster.now_s -= 3 * 3600
    for _ in range(3):
        renewed, reported = nodes.revision("a"), nodes.conditions("a")["Ready"]["lastHeartbeatTime"]
        nodes.pass_s(10)
        assert nodes.revision("a") > renewed
    assert nodes.conditions("a")["Ready"]["lastHeartbeatTime"] <= reported
    assert nodes.cluster.api.get(Request(LEASE, "kube-node-lease", "a"))["spec"]["renewTime"][:19] <= timestamp(
        nodes.cluster.now_s
    )
    assert nodes.conditions("a")["Ready"]["lastHeartbeatTime"] <= timestamp(nodes.cluster.now_s)


def test_a_lease_that_is_deleted_is_made_again() -> None:
    nodes = Nodes()
    nodes.cluster.api.delete(Request(LEASE, "kube-node-lease", "kdns"))
    nodes.cluster.settle()
    assert nodes.revision("kdns")
    nodes.cluster.api.create(Request(LEASE, "default"), {"metadata": {"name": "kdns"}})
    nodes.cluster.settle()
