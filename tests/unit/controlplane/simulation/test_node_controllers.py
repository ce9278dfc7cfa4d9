"""The controllers around nodes, Pods and namespaces, against a real Registry: what they write, until they rest."""

import random

import pytest
from object_api import refused
from workload_cluster import Workbench

from kdns.controlplane.apimachinery.kinds import NODE, POD, Json, Kind
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.reconciler import Reconciler
from kdns.controlplane.server.patch import STRATEGIC_MERGE_PATCH
from kdns.controlplane.server.registry import Request as ApiRequest
from kdns.controlplane.server.subresources import bind, evict
from kdns.controlplane.simulation.nodes.kubelet import Kubelet
from kdns.controlplane.simulation.nodes.scheduler import Scheduler
from kdns.controlplane.storage.object_meta import is_terminating


class Cluster(Workbench):
    """Nodes and Pods with a scheduler and kubelets; the clock is the test's."""

    def new_controllers(self) -> tuple[Reconciler, ...]:
        return Scheduler(), Kubelet(ClusterConfig(), random.Random(1).randrange)

    @property
    def told(self) -> list[str]:
        return [event.reason for event in self.events]

    def add_node(self, name: str, **fields: object) -> None:
        self.make(NODE, {"metadata": {"name": name}, **fields})
        self.settle()

    def pod(self, name: str, **fields: object) -> Json:
        spec = {"containers": [{"name": "c", "image": "i"}], **(fields.pop("spec", None) or {})}  # type: ignore[dict-item]
        self.make(POD, {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec, **fields})
        self.settle()
        return self.get(POD, name)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster(graceful=True)
    made.add_node("a")
    return made


def condition(obj: Json, name: str) -> str:
    rows: dict[str, str] = {row["type"]: row["status"] for row in obj["status"]["conditions"]}
    return rows.get(name, "")


def say(cluster: Cluster, kind: Kind, name: str, condition: str, status: str) -> None:
    """Have a client say this of a Node or Pod."""
    patch = {"status": {"conditions": [{"type": condition, "status": status}]}}
    namespace = "default" if kind.namespaced else ""
    cluster.api.patch(ApiRequest(kind, namespace, name, subresource="status"), STRATEGIC_MERGE_PATCH, patch)
    cluster.settle()


def test_a_node_from_a_manifest_reports_itself(cluster: Cluster) -> None:
    node = cluster.get(NODE, "a")
    assert condition(node, "Ready") == "True"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "a"
    addresses = {row["type"]: row["address"] for row in node["status"]["addresses"]}
    assert addresses["Hostname"] == "a"
    cluster.add_node("b")
    others = cluster.get(NODE, "b")["status"]["addresses"]
    assert others[0]["address"] != addresses["InternalIP"], "each node has an address of its own"
    hosted = cluster.pod("p", spec={"hostNetwork": True, "nodeName": "a"})
    assert hosted["status"]["podIP"] == hosted["status"]["hostIP"] == addresses["InternalIP"]


def test_a_node_that_is_down_runs_nothing(cluster: Cluster) -> None:
    down = {
        "conditions": [{"type": "Ready", "status": "False"}],
        "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}],
    }
    cluster.add_node("down", status=down)
    assert cluster.pod("p", spec={"nodeName": "down"})["status"]["phase"] == "Pending"
    assert cluster.pod("q")["spec"]["nodeName"] == "a"
    say(cluster, NODE, "down", "Ready", "True")
    assert cluster.get(POD, "p")["status"]["phase"] == "Running"


def test_readiness_gates_open_and_close(cluster: Cluster) -> None:
    pod = cluster.pod("p", spec={"readinessGates": [{"conditionType": "example.com/open"}]})
    assert (condition(pod, "ContainersReady"), condition(pod, "Ready")) == ("True", "False")
    for status in ("True", "False"):
        say(cluster, POD, "p", "example.com/open", status)
        assert condition(cluster.get(POD, "p"), "Ready") == status


def test_a_deleted_pod_goes_after_its_pre_stop_sleep(cluster: Cluster) -> None:
    sleeps = {"name": "c", "image": "i", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}
    cluster.pod("p", spec={"containers": [sleeps]})
    cluster.pod("q")
    for name in "pq":
        cluster.delete(POD, name)
    cluster.settle()
    assert cluster.names(POD) == ["p"]
    cluster.wait(4)
    assert condition(cluster.get(POD, "p"), "Ready") == "True", "it serves while it drains"
    cluster.wait(2)
    assert cluster.names(POD) == []


def test_a_clock_that_is_set_back_holds_no_pod_that_drains(cluster: Cluster) -> None:
    sleeps = {"name": "c", "image": "i", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}
    cluster.pod("p", spec={"containers": [sleeps]})
    cluster.delete(POD, "p")
    cluster.settle()
    cluster.now_s -= 3 * 3600
    cluster.api.patch(ApiRequest(POD, "default", "p"), STRATEGIC_MERGE_PATCH, {"metadata": {"labels": {"a": "b"}}})
    cluster.settle()
    assert cluster.names(POD) == []


def test_pods_go_with_their_node(cluster: Cluster) -> None:
    cluster.pod("p")
    cluster.pod("never", spec={"nodeName": "unknown"})
    cluster.delete(NODE, "a")
    cluster.settle()
    assert cluster.names(POD) == ["never"]
    cluster.delete(POD, "never")
    cluster.settle()
    assert cluster.names(POD) == [], "nobody else could end it"


def test_pods_of_a_node_that_is_made_anew_stay_with_it(cluster: Cluster) -> None:
    held = cluster.pod("p")
    held["metadata"]["finalizers"] = ["example.com/held"]
    cluster.put(POD, held)
    cluster.delete(NODE, "a")
    cluster.make(NODE, {"metadata": {"name": "a"}})
    cluster.settle()
    assert condition(cluster.get(POD, "p"), "Ready") == "True"
    assert not is_terminating(cluster.get(POD, "p"))


def test_pods_are_as_ready_as_their_node(cluster: Cluster) -> None:
    cluster.pod("p")
    cluster.pod("patched")
    say(cluster, POD, "patched", "Ready", "False")
    for status in ("False", "True", "Unknown", "True"):
        say(cluster, NODE, "a", "Ready", status)
        assert condition(cluster.get(POD, "p"), "Ready") == str(status == "True")
    assert condition(cluster.get(POD, "patched"), "Ready") == "False", "what a client said stays"
    assert "NodeNotReady" in cluster.told


def test_a_taint_evicts_nobody(cluster: Cluster) -> None:
    cluster.pod("p")
    taints = {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}
    cluster.api.patch(ApiRequest(NODE, "", "a"), STRATEGIC_MERGE_PATCH, taints)
    cluster.settle()
    assert condition(cluster.get(POD, "p"), "Ready") == "True"
    assert cluster.pod("q")["status"]["phase"] == "Pending"


NAMED: Json = {"metadata": {"name": "p"}}


def test_an_eviction_deletes_the_pod(cluster: Cluster) -> None:
    cluster.pod("p")
    for dry_run, options in ((True, {}), (False, {"dryRun": ["All"]})):
        evict(cluster.api, ApiRequest(POD, "default", "p", dry_run=dry_run), {**NAMED, "deleteOptions": options})
        assert not is_terminating(cluster.get(POD, "p"))
    evict(cluster.api, ApiRequest(POD, "default", "p"), NAMED)
    assert is_terminating(cluster.get(POD, "p"))
    evict(cluster.api, ApiRequest(POD, "default", "p"), NAMED)
    cluster.settle()
    assert cluster.names(POD) == []
    why = "name in URL does not match name in Eviction object"
    refused(400, why, evict, cluster.api, ApiRequest(POD, "default", "q"), NAMED)


def test_binding(cluster: Cluster) -> None:
    cluster.pod("p", spec={"schedulerName": "mine"})
    bind(cluster.api, ApiRequest(POD, "default", "p", dry_run=True), {**NAMED, "target": {"kind": "Node", "name": "a"}})
    assert "nodeName" not in cluster.get(POD, "p")["spec"]
    bind(cluster.api, ApiRequest(POD, "default", "p"), {**NAMED, "target": {"kind": "Node", "name": "a"}})
    cluster.settle()
    assert cluster.get(POD, "p")["status"]["phase"] == "Running"
    for target, code, message in (
        ({"name": "b"}, 409, 'pods/binding "p": pod p is already assigned to node "a"'),
        ({"kind": "Pod", "name": "b"}, 500, 'target.kind: Unsupported value: "Pod"'),
        ({}, 500, "target.name: Required value"),
    ):
        refused(code, message, bind, cluster.api, ApiRequest(POD, "default", "p"), {**NAMED, "target": target})


@pytest.mark.parametrize(
    ("field", "what", "why"),
    [("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")],
)
def test_an_eviction_is_of_the_pod_that_was_meant(cluster: Cluster, field: str, what: str, why: str) -> None:
    cluster.pod("p")
    found, request = cluster.get(POD, "p")["metadata"][field], ApiRequest(POD, "default", "p")
    mismatch = f"the {what} in the precondition (1) does not match the {what} in record ({found})"
    wanted = f'Operation cannot be fulfilled on Pod "p": {mismatch}. The object might have been {why}'
    review = {**NAMED, "deleteOptions": {"preconditions": {field: "1"}}}
    refused(409, wanted, evict, cluster.api, request, review)
    evict(cluster.api, ApiRequest(POD, "default", "p"), {**NAMED, "deleteOptions": {"preconditions": {field: found}}})
    cluster.settle()
    assert cluster.names(POD) == []
