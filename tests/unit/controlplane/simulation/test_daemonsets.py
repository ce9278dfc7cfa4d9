"""DaemonSets: which nodes get a Pod, and how Pods are replaced."""

from typing import Any

import pytest
from workload_cluster import Workbench, template, workload

from kdns.controlplane.apimachinery.kinds import CONTROLLER_REVISION, DAEMON_SET, NODE, POD, Json
from kdns.controlplane.simulation.nodes.scheduler import daemon_tolerations, untolerated


def node(name: str = "n1", labels: Json | None = None, *taints: Json) -> Json:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": list(taints)}}


def test_pods_of_daemon_sets_tolerate_more() -> None:
    cordoned = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    offline = {"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}
    assert untolerated(daemon_tolerations({}), node("n", {}, cordoned)) == set()
    assert untolerated(daemon_tolerations({}), node("n", {}, offline)) == {"NoSchedule"}
    assert untolerated(daemon_tolerations({"hostNetwork": True}), node("n", {}, offline)) == set()


def made(*nodes: str, **spec: Any) -> Workbench:
    bench = Workbench()
    for name in nodes:
        bench.node(name, {"disk": "ssd"})
    bench.make(DAEMON_SET, workload(**spec))
    bench.run_pods()
    return bench


def where(bench: Workbench) -> dict[str, str]:
    """node → image."""
    return {pod["spec"]["nodeName"]: pod["spec"]["containers"][0]["image"] for pod in bench.pods()}


def test_nodes_come_change_and_go() -> None:
    selected = {**template()["spec"], "nodeSelector": {"disk": "ssd"}}
    bench = made("a", "b", template={**template(), "spec": selected})
    bench.node("c", {"disk": "hdd"})
    bench.run_pods()
    assert sorted(where(bench)) == ["a", "b"]
    bench.node("d", {"disk": "ssd"})
    other = bench.get(NODE, "a")
    labelled = {**other, "metadata": {**other["metadata"], "labels": {"disk": "hdd"}}}
    bench.put(NODE, labelled)
    bench.run_pods()
    assert sorted(where(bench)) == ["b", "d"]
    counts = bench.get(DAEMON_SET, "web")["status"]
    assert (counts["desiredNumberScheduled"], counts["numberReady"], counts["numberMisscheduled"]) == (2, 2, 0)


@pytest.mark.parametrize(("effect", "keeps"), [("NoSchedule", True), ("NoExecute", False), ("PreferNoSchedule", True)])
def test_a_taint_that_comes_later(effect: str, keeps: bool) -> None:
    bench = made("a")
    stored = bench.get(NODE, "a")
    bench.put(NODE, {**stored, "spec": {"taints": [{"key": "x", "effect": effect}]}})
    bench.run_pods()
    assert (len(bench.pods()) == 1) is keeps
    misplaced = bench.get(DAEMON_SET, "web")["status"]["numberMisscheduled"]
    assert misplaced == (1 if effect == "NoSchedule" else 0)


def test_a_pod_is_tied_to_its_node_and_numbered() -> None:
    bench = made("a")
    (pod,) = bench.pods()
    revision = bench.all(CONTROLLER_REVISION)[0]
    labels = pod["metadata"]["labels"]
    assert revision["metadata"]["name"] == f"web-{labels['controller-revision-hash']}"
    data = revision["data"]["spec"]["template"]
    assert list(data) == sorted(data)
    assert data["spec"]["containers"][0]["resources"] == {}  # as a kube-controller-manager beside kdns makes it
    assert labels["pod-template-generation"] == "1"
    bench.roll(DAEMON_SET, "i:2")
    assert bench.pods()[0]["metadata"]["labels"]["pod-template-generation"] == "2"


@pytest.mark.parametrize(
    ("rolling", "replaced"),
    [
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": "50%"}, 2),
        ({"maxUnavailable": "100%"}, 4),
        ({"maxUnavailable": 0, "maxSurge": 1}, 1),
        ({"maxUnavailable": 0, "maxSurge": "75%"}, 3),
    ],
)
def test_so_many_are_replaced_at_a_time(rolling: Json, replaced: int) -> None:
    bench = made("a", "b", "c", "d", updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling})
    bench.change(DAEMON_SET, "web", template=template("i:2"))
    bench.settle()
    new = [pod for pod in bench.pods() if pod["spec"]["containers"][0]["image"] == "i:2"]
    assert len(new) == replaced
    assert len(bench.pods()) == 4 + (replaced if rolling.get("maxSurge") else 0), "with a surge none leaves before"
    bench.run_pods()
    assert where(bench) == dict.fromkeys("abcd", "i:2")
    assert len(bench.pods()) == 4


def test_on_delete_waits_for_people() -> None:
    bench = made("a", "b", updateStrategy={"type": "OnDelete"})
    bench.roll(DAEMON_SET, "i:2")
    assert where(bench) == {"a": "i:1", "b": "i:1"}
    bench.vanish(bench.pods()[0])
    bench.run_pods()
    assert sorted(where(bench).values()) == ["i:1", "i:2"]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_ended_is_replaced(phase: str) -> None:
    bench = made("a")
    old = bench.names(POD)
    bench.report(bench.pods()[0], phase=phase, ready=False)
    bench.run_pods()
    assert bench.names(POD) != old
    assert len(bench.names(POD)) == 1
