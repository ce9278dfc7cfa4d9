"""Which nodes take which Pods, and what is said when none does."""

import pytest

from kdns.controlplane.apimachinery.kinds import NODE, POD, Json
from kdns.controlplane.controllers.reconciler import Change, Request
from kdns.controlplane.simulation.nodes.scheduler import Scheduler, obstacle

NOW = "2026-01-01T00:00:00Z"
UNSCHEDULABLE = "node(s) were unschedulable"
TAINTED = "node(s) had untolerated taint(s)"
UNWANTED = "node(s) didn't match Pod's node affinity/selector"


NOT_ONE_OF_THREE = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) were unschedulable."


def node(name: str = "a", *, ready: str = "True", labels: Json | None = None, **spec: object) -> Json:
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"conditions": conditions}}


def pod(name: str = "p", **spec: object) -> Json:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def tainted(effect: str, key: str = "dedicated", value: str = "db") -> Json:
    return node(taints=[{"key": key, "value": value, "effect": effect}])


def required(*terms: Json) -> Json:
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return pod(affinity={"nodeAffinity": wanted})


def expression(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


SSD = node(labels={"disk": "ssd", "size": "7"})


@pytest.mark.parametrize(
    ("asked", "there", "problem"),
    [
        (pod(), node(), ""),
        (pod(), node(ready="False"), TAINTED),
        (pod(), node(ready="Unknown"), TAINTED),
        (pod(tolerations=[{"operator": "Exists"}]), node(ready="False"), ""),
        (pod(), node(unschedulable=True), UNSCHEDULABLE),
        (
            pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
            node(unschedulable=True),
            "",
        ),
        (pod(), tainted("NoSchedule"), TAINTED),
        (pod(), tainted("NoExecute"), TAINTED),
        (pod(), tainted("PreferNoSchedule"), ""),
        (pod(tolerations=[{"key": "dedicated", "value": "db"}]), tainted("NoSchedule"), ""),
        (pod(tolerations=[{"key": "dedicated", "value": "web"}]), tainted("NoSchedule"), TAINTED),
        (pod(tolerations=[{"key": "dedicated", "operator": "Exists"}]), tainted("NoSchedule"), ""),
        (pod(tolerations=[{"key": "dedicated", "value": "db", "effect": "NoExecute"}]), tainted("NoSchedule"), TAINTED),
        (pod(tolerations=[{"key": "other", "operator": "Exists"}]), tainted("NoSchedule"), TAINTED),
        (pod(nodeSelector={"disk": "ssd"}), SSD, ""),
        (pod(nodeSelector={"disk": "ssd"}), node(), UNWANTED),
        (required(expression("disk", "In", "ssd", "nvme")), SSD, ""),
        (required(expression("disk", "In", "ssd")), node(), UNWANTED),
        (required(expression("disk", "NotIn", "ssd")), SSD, UNWANTED),
        (required(expression("disk", "NotIn", "ssd")), node(), ""),
        (required(expression("disk", "Exists")), SSD, ""),
        (required(expression("disk", "DoesNotExist")), SSD, UNWANTED),
        (required(expression("size", "Gt", "6")), SSD, ""),
        (required(expression("size", "Lt", "6")), SSD, UNWANTED),
        (required(expression("disk", "Gt", "6")), SSD, UNWANTED),
        (required(expression("disk", "Like", "s")), SSD, UNWANTED),
        (required(expression("disk", "In", "hdd"), expression("disk", "Exists")), SSD, ""),
        (required({}), SSD, UNWANTED),
        (required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}), node(), ""),
        (required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}), node(), UNWANTED),
    ],
)
def test_obstacle(asked: Json, there: Json, problem: str) -> None:
    assert obstacle(asked, there) == problem


def learnt(*objects: tuple[str, Json]) -> Scheduler:
    scheduler = Scheduler()
    for kind, obj in objects:
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        scheduler.observe(Change(NODE if kind == "node" else POD, key, obj, 1))
    return scheduler


def test_pods_are_spread() -> None:
    scheduler = learnt(("node", node("a")), ("node", node("b")), ("node", node("c", unschedulable=True)))
    placed = []
    for number in range(4):
        obj = pod(f"p{number}")
        assert list(scheduler.observe(Change(POD, ("default", f"p{number}"), obj, 1))) == [("default", f"p{number}")]
        result = scheduler.reconcile(Request(("default", f"p{number}"), 0))
        bound = result.actions[0].obj
        placed.append(bound["spec"]["nodeName"])
        assert result.events[0].message == f"Successfully assigned default/p{number} to {placed[-1]}"
        scheduler.observe(Change(POD, ("default", f"p{number}"), bound, 2))
    assert placed == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "no nodes available to schedule pods"),
        ([node("a", unschedulable=True), node("b", ready="False"), node("c", unschedulable=True)], NOT_ONE_OF_THREE),
    ],
)
def test_a_pod_without_a_node_is_told_why_once(nodes: list[Json], message: str) -> None:
    scheduler = learnt(*(("node", each) for each in nodes), ("pod", pod()))
    result = scheduler.reconcile(Request(("default", "p"), 0))
    waiting = result.actions[0].obj
    assert waiting["status"]["conditions"][0] | {"lastTransitionTime": ""} == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": "",
    }
    assert [(event.reason, event.message) for event in result.events] == [("FailedScheduling", message)]
    scheduler.observe(Change(POD, ("default", "p"), waiting, 2))
    assert scheduler.reconcile(Request(("default", "p"), 9)).actions == ()
    assert list(scheduler.observe(Change(NODE, ("", "new"), node("new"), 3))) == [("default", "p")]
    assert scheduler.reconcile(Request(("default", "p"), 9)).actions[0].obj["spec"]["nodeName"] == "new"


@pytest.mark.parametrize(
    "obj",
    [
        pod(schedulerName="mine"),
        pod(nodeName="a"),
        {**pod(), "status": {"phase": "Succeeded"}},
        {**pod(), "metadata": {"name": "p", "deletionTimestamp": NOW}},
    ],
)
def test_who_is_left_alone(obj: Json) -> None:
    assert list(learnt(("node", node())).observe(Change(POD, ("default", "p"), obj, 1))) == []


def test_a_gate_keeps_a_pod_from_being_scheduled() -> None:
    result = learnt(("node", node()), ("pod", pod(schedulingGates=[{"name": "wait"}]))).reconcile(
        Request(("default", "p"), 0)
    )
    assert result.actions[0].obj["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert result.events == ()


def test_nothing_is_known_of_nodes_that_are_gone() -> None:
    scheduler = Scheduler()
    for number in range(9):
        obj = {"metadata": {"name": "p", "namespace": "a"}, "spec": {"nodeName": f"n{number}"}}
        for changed in (obj, None):
            scheduler.observe(Change(POD, ("a", "p"), changed, 1))
    assert not scheduler._load  # noqa: SLF001 - what leaks is not shown
