"""The controllers around nodes, Pods and namespaces, against a real Registry: what they write, until they rest."""

from __future__ import annotations

import random
from itertools import count

import pytest

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import NAMESPACE, NODE, POD, SERVICE_ACCOUNT, Json, Kind
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.reconciler import Change, Reconciler, Request
from kdns.controlplane.controllers.service_accounts import ServiceAccounts
from kdns.controlplane.server.patch import STRATEGIC_MERGE_PATCH
from kdns.controlplane.server.registry import Registry
from kdns.controlplane.server.request import Request as ApiRequest
from kdns.controlplane.server.subresources import bind, evict
from kdns.controlplane.simulation.nodes.kubelet import Kubelet
from kdns.controlplane.simulation.nodes.scheduler import Scheduler
from kdns.controlplane.storage.object_meta import is_terminating
from kdns.controlplane.storage.store import Store


class Cluster:
    """A Registry and some controllers; `settle` runs them until nobody writes. The clock is the test's."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0
        numbers, config = count(1), ClusterConfig()
        choose = random.Random(1).randrange
        uid, suffix = (lambda: f"uid-{next(numbers)}"), (lambda: f"{next(numbers):05}")
        self.api = Registry(Store(), config, choose, lambda: self.now_s, uid, suffix, grace=True)
        controllers: tuple[Reconciler, ...] = (
            Scheduler(),
            Kubelet(config, choose),
            ServiceAccounts(),
        )
        followed = {kind: self.api.watch(ApiRequest(kind)) for each in controllers for kind in each.watches}
        self._controllers, self._followed = controllers, followed
        self.told: list[str] = []
        self._later: list[tuple[Reconciler, tuple[str, ...]]] = []
        self.api.create(ApiRequest(NAMESPACE), {"metadata": {"name": "default"}})

    def settle(self) -> None:
        queue, self._later = dict.fromkeys(self._later), []
        for _ in range(1000):
            for kind, subscription in self._followed.items():
                for event in subscription.take():
                    obj = None if event.type == "DELETED" else event.stored.obj
                    for each in self._controllers:
                        if kind in each.watches:
                            subjects = each.observe(Change(kind, event.stored.key, obj, event.stored.revision))
                            queue |= dict.fromkeys((each, request) for request in subjects)
            if not queue:
                return
            controller, request = next(iter(queue))
            queue.pop((controller, request))
            self._run(controller, request)
        pytest.fail("the controllers never come to rest")

    def _run(self, controller: Reconciler, request: tuple[str, ...]) -> None:
        result = controller.reconcile(Request(request, self.now_s))
        self.told += [event.reason for event in result.events]
        if result.requeue_after_s is not None:
            self._later.append((controller, request))
        for action in result.actions:
            meta = action.obj["metadata"]
            key: Key = (meta.get("namespace", ""), meta["name"])
            if action.verb == "delete":
                self.api.delete(ApiRequest(action.kind, *key), options=action.options)
            elif action.verb == "create":
                self.api.create(ApiRequest(action.kind, key[0]), action.obj)
            else:
                self.api.update(ApiRequest(action.kind, *key, subresource=action.subresource), action.obj)

    def node(self, name: str, **fields: object) -> None:
        self.api.create(ApiRequest(NODE), {"metadata": {"name": name}, **fields})
        self.settle()

    def pod(self, name: str, **fields: object) -> Json:
        spec = {"containers": [{"name": "c", "image": "i"}], **(fields.pop("spec", None) or {})}  # type: ignore[dict-item]
        self.api.create(
            ApiRequest(POD, "default"), {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec, **fields}
        )
        self.settle()
        return self.api.get(ApiRequest(POD, "default", name))

    def names(self, kind: Kind) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.api.list(ApiRequest(kind)).items]


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.node("a")
    return made


def condition(obj: Json, name: str) -> str:
    rows: dict[str, str] = {row["type"]: row["status"] for row in obj["status"]["conditions"]}
    return rows.get(name, "")


def test_a_node_from_a_manifest_reports_itself(cluster: Cluster) -> None:
    node = cluster.api.get(ApiRequest(NODE, "", "a"))
    assert condition(node, "Ready") == "True"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "a"
    addresses = {row["type"]: row["address"] for row in node["status"]["addresses"]}
    assert addresses["Hostname"] == "a"
    cluster.node("b")
    others = cluster.api.get(ApiRequest(NODE, "", "b"))["status"]["addresses"]
    assert others[0]["address"] != addresses["InternalIP"], "each node has an address of its own"
    hosted = cluster.pod("p", spec={"hostNetwork": True, "nodeName": "a"})
    assert hosted["status"]["podIP"] == hosted["status"]["hostIP"] == addresses["InternalIP"]


def test_a_node_that_is_down_runs_nothing(cluster: Cluster) -> None:
    down = {
        "conditions": [{"type": "Ready", "status": "False"}],
        "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}],
    }
    cluster.node("down", status=down)
    assert cluster.pod("p", spec={"nodeName": "down"})["status"]["phase"] == "Pending"
    assert cluster.pod("q")["spec"]["nodeName"] == "a"
    patch = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    cluster.api.patch(ApiRequest(NODE, "", "down", subresource="status"), STRATEGIC_MERGE_PATCH, patch)
    cluster.settle()
    assert cluster.api.get(ApiRequest(POD, "default", "p"))["status"]["phase"] == "Running"


def test_a_pod_is_scheduled_started_and_told_of(cluster: Cluster) -> None:
    pod = cluster.pod("p")
    assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == ("a", "Running")
    assert cluster.told == ["Scheduled"]


def test_readiness_gates_open_and_close(cluster: Cluster) -> None:
    pod = cluster.pod("p", spec={"readinessGates": [{"conditionType": "example.com/open"}]})
    assert (condition(pod, "ContainersReady"), condition(pod, "Ready")) == ("True", "False")
    for status in ("True", "False"):
        patch = {"status": {"conditions": [{"type": "example.com/open", "status": status}]}}
        cluster.api.patch(ApiRequest(POD, "default", "p", subresource="status"), STRATEGIC_MERGE_PATCH, patch)
        cluster.settle()
        assert condition(cluster.api.get(ApiRequest(POD, "default", "p")), "Ready") == status


def test_a_deleted_pod_goes_after_its_pre_stop_sleep(cluster: Cluster) -> None:
    sleeps = {"name": "c", "image": "i", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}
    cluster.pod("p", spec={"containers": [sleeps]})
    cluster.pod("q")
    for name in "pq":
        cluster.api.delete(ApiRequest(POD, "default", name))
    cluster.settle()
    assert cluster.names(POD) == ["p"]
    cluster.now_s += 4
    cluster.settle()
    assert condition(cluster.api.get(ApiRequest(POD, "default", "p")), "Ready") == "True", "it serves while it drains"
    cluster.now_s += 2
    cluster.settle()
    assert cluster.names(POD) == []


def test_a_clock_that_is_set_back_holds_no_pod_that_drains(cluster: Cluster) -> None:
    sleeps = {"name": "c", "image": "i", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}
    cluster.pod("p", spec={"containers": [sleeps]})
    cluster.api.delete(ApiRequest(POD, "default", "p"))
    cluster.settle()
    cluster.now_s -= 3 * 3600
    cluster.settle()
    assert cluster.names(POD) == []


def test_pods_go_with_their_node(cluster: Cluster) -> None:
    cluster.pod("p")
    cluster.pod("never", spec={"nodeName": "unknown"})
    cluster.api.delete(ApiRequest(NODE, "", "a"))
    cluster.settle()
    assert cluster.names(POD) == ["never"]
    cluster.api.delete(ApiRequest(POD, "default", "never"))
    cluster.settle()
    assert cluster.names(POD) == [], "nobody else could end it"


def test_pods_of_a_node_that_is_made_anew_stay_with_it(cluster: Cluster) -> None:
    held = cluster.pod("p")
    held["metadata"]["finalizers"] = ["example.com/held"]
    cluster.api.update(ApiRequest(POD, "default", "p"), held)
    cluster.api.delete(ApiRequest(NODE, "", "a"))
    cluster.api.create(ApiRequest(NODE), {"metadata": {"name": "a"}})
    cluster.settle()
    assert condition(cluster.api.get(ApiRequest(POD, "default", "p")), "Ready") == "True"
    assert not is_terminating(cluster.api.get(ApiRequest(POD, "default", "p")))


def set_ready(cluster: Cluster, node: str, status: str) -> None:
    patch = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
    cluster.api.patch(ApiRequest(NODE, "", node, subresource="status"), STRATEGIC_MERGE_PATCH, patch)
    cluster.settle()


def test_pods_are_as_ready_as_their_node(cluster: Cluster) -> None:
    cluster.pod("p")
    cluster.pod("patched")
    patch = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    cluster.api.patch(ApiRequest(POD, "default", "patched", subresource="status"), STRATEGIC_MERGE_PATCH, patch)
    for status in ("False", "True", "Unknown", "True"):
        set_ready(cluster, "a", status)
        assert condition(cluster.api.get(ApiRequest(POD, "default", "p")), "Ready") == str(status == "True")
    assert condition(cluster.api.get(ApiRequest(POD, "default", "patched")), "Ready") == "False", (
        "what a client said stays"
    )
    assert "NodeNotReady" in cluster.told


def test_a_taint_evicts_nobody(cluster: Cluster) -> None:
    cluster.pod("p")
    taints = {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}
    cluster.api.patch(ApiRequest(NODE, "", "a"), STRATEGIC_MERGE_PATCH, taints)
    cluster.settle()
    assert condition(cluster.api.get(ApiRequest(POD, "default", "p")), "Ready") == "True"
    assert cluster.pod("q")["status"]["phase"] == "Pending"


def test_every_namespace_has_its_account(cluster: Cluster) -> None:
    cluster.api.create(ApiRequest(NAMESPACE), {"metadata": {"name": "x"}})
    cluster.settle()
    cluster.api.delete(ApiRequest(SERVICE_ACCOUNT, "x", "default"))
    cluster.settle()
    assert cluster.names(SERVICE_ACCOUNT) == ["default", "default"]
    cluster.api.delete(ApiRequest(NAMESPACE, "", "x"))
    cluster.settle()
    assert cluster.names(NAMESPACE) == ["default"]


NAMED: Json = {"metadata": {"name": "p"}}


def test_an_eviction_deletes_the_pod(cluster: Cluster) -> None:
    cluster.pod("p")
    for dry_run, options in ((True, {}), (False, {"dryRun": ["All"]})):
        evict(cluster.api, ApiRequest(POD, "default", "p", dry_run=dry_run), {**NAMED, "deleteOptions": options})
        assert not is_terminating(cluster.api.get(ApiRequest(POD, "default", "p")))
    evict(cluster.api, ApiRequest(POD, "default", "p"), NAMED)
    assert is_terminating(cluster.api.get(ApiRequest(POD, "default", "p")))
    evict(cluster.api, ApiRequest(POD, "default", "p"), NAMED)
    cluster.settle()
    assert cluster.names(POD) == []
    with pytest.raises(StatusError, match="name in URL does not match name in Eviction object"):
        evict(cluster.api, ApiRequest(POD, "default", "q"), NAMED)


def test_binding(cluster: Cluster) -> None:
    cluster.pod("p", spec={"schedulerName": "mine"})
    bind(cluster.api, ApiRequest(POD, "default", "p", dry_run=True), {**NAMED, "target": {"kind": "Node", "name": "a"}})
    assert "nodeName" not in cluster.api.get(ApiRequest(POD, "default", "p"))["spec"]
    bind(cluster.api, ApiRequest(POD, "default", "p"), {**NAMED, "target": {"kind": "Node", "name": "a"}})
    cluster.settle()
    assert cluster.api.get(ApiRequest(POD, "default", "p"))["status"]["phase"] == "Running"
    for target, code, message in (
        ({"name": "b"}, 409, 'pods/binding "p": pod p is already assigned to node "a"'),
        ({"kind": "Pod", "name": "b"}, 500, 'target.kind: Unsupported value: "Pod"'),
        ({}, 500, "target.name: Required value"),
    ):
        with pytest.raises(StatusError) as caught:
            bind(cluster.api, ApiRequest(POD, "default", "p"), {**NAMED, "target": target})
        assert caught.value.code == code
        assert message in caught.value.message


@pytest.mark.parametrize(
    ("field", "what", "why"),
    [("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")],
)
def test_an_eviction_is_of_the_pod_that_was_meant(cluster: Cluster, field: str, what: str, why: str) -> None:
    cluster.pod("p")
    found = cluster.api.get(ApiRequest(POD, "default", "p"))["metadata"][field]
    with pytest.raises(StatusError) as refused:
        evict(cluster.api, ApiRequest(POD, "default", "p"), {**NAMED, "deleteOptions": {"preconditions": {field: "1"}}})
    mismatch = f"the {what} in the precondition (1) does not match the {what} in record ({found})"
    wanted = f'Operation cannot be fulfilled on Pod "p": {mismatch}. The object might have been {why}'
    assert (refused.value.code, refused.value.message) == (409, wanted)
    evict(cluster.api, ApiRequest(POD, "default", "p"), {**NAMED, "deleteOptions": {"preconditions": {field: found}}})
    cluster.settle()
    assert cluster.names(POD) == []
