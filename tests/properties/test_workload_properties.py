"""Whatever people and kubelets do to workloads, and in whatever order the controllers get to it: it ends as it should.

While Pods only get better, a rolling update never has more Pods than the surge allows, nor takes away an available one
that must stay.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workload_cluster import Workbench, is_ready, template, workload

from kdns.controlplane.apimachinery.kinds import DAEMON_SET, DEPLOYMENT, POD, REPLICA_SET, STATEFUL_SET, Json
from kdns.controlplane.controllers.reconciler import Action
from kdns.controlplane.simulation.workloads.deployment import budget
from kdns.controlplane.simulation.workloads.pods import desired_replicas, int_or_percent

IMAGES = st.sampled_from(["i:1", "i:2", "i:3"])
BUDGETS = st.sampled_from([("25%", "25%"), (1, 0), (0, 1), ("100%", "100%"), ("10%", 2), (3, "50%")])
STEP = st.one_of(
    st.tuples(st.just("scale"), st.integers(0, 12)),
    st.tuples(st.just("image"), IMAGES),
    st.tuples(st.just("budget"), BUDGETS),
    st.tuples(st.just("ready"), st.integers(0, 20)),
    st.tuples(st.just("work"), st.integers(1, 12)),
    st.tuples(st.just("settle"), st.just(0)),
)
HARM = st.one_of(
    st.tuples(st.just("unready"), st.integers(0, 20)),
    st.tuples(st.just("fail"), st.integers(0, 20)),
    st.tuples(st.just("vanish"), st.integers(0, 20)),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("recreate"), st.just(0)),
    st.tuples(st.just("time"), st.integers(1, 700)),
)


def step(bench: Workbench, kind: str, value: Any) -> None:
    """One thing that happens to Deployment web or to one of the Pods."""
    match kind:
        case "scale":
            bench.change(DEPLOYMENT, "web", replicas=value)
        case "image":
            bench.change(DEPLOYMENT, "web", template=template(value))
        case "budget":
            rolling = {"maxSurge": value[0], "maxUnavailable": value[1]}
            bench.change(DEPLOYMENT, "web", strategy={"type": "RollingUpdate", "rollingUpdate": rolling})
        case "recreate":
            bench.change(DEPLOYMENT, "web", strategy={"type": "Recreate"})
        case "pause":
            bench.change(DEPLOYMENT, "web", paused=value)
        case "work":
            bench.settle(value)
        case "settle":
            bench.settle()
        case "time":
            bench.wait(value)
        case _:
            pod_step(bench, kind, value)


def pod_step(bench: Workbench, kind: str, value: int) -> None:
    """What a kubelet, or a person, does to one of the Pods."""
    pods = bench.pods()
    if not pods:
        return
    pod = pods[value % len(pods)]
    match kind:
        case "vanish":
            bench.vanish(pod)
        case "fail":
            bench.report(pod, ready=False, phase="Failed")
        case _:
            bench.report(pod, ready=kind == "ready")


def finish(bench: Workbench) -> None:
    """Let everything be well, and compare with what is desired_replicas."""
    bench.change(DEPLOYMENT, "web", paused=False)
    bench.run_pods()
    deployment = bench.get(DEPLOYMENT, "web")
    size, status = desired_replicas(deployment), deployment["status"]
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert [pod["spec"]["containers"][0]["image"] for pod in bench.pods()] == [image] * size
    active = [each for each in bench.all(REPLICA_SET) if desired_replicas(each)]
    assert [desired_replicas(each) for each in active] == ([size] if size else [])
    assert [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")] == [size] * 3
    assert status["observedGeneration"] == deployment["metadata"]["generation"]
    assert {row["type"]: row["status"] for row in status["conditions"]} == {"Available": "True", "Progressing": "True"}
    before = bench.api.store.revision
    bench.settle()
    assert bench.api.store.revision == before


@given(st.integers(0, 8), st.lists(st.one_of(STEP, HARM), max_size=25), st.booleans())
def test_a_deployment_ends_as_it_is_wanted(replicas: int, steps: list[tuple[str, object]], graceful: bool) -> None:
    bench = Workbench(graceful=graceful)
    bench.make(DEPLOYMENT, workload(replicas=replicas))
    for kind, value in steps:
        step(bench, kind, value)
    finish(bench)


@dataclass
class Bounds:
    """Watches the writes of the controllers."""

    bench: Workbench | None = None
    broken: list[str] = field(default_factory=list)

    def __call__(self, controller: str, action: Action) -> None:
        assert self.bench
        deployment = self.bench.get(DEPLOYMENT, "web")
        surge, unavailable = budget(deployment)
        if (action.verb, action.kind) == ("update", REPLICA_SET) and not action.subresource:
            sets = {each["metadata"]["name"]: desired_replicas(each) for each in self.bench.all(REPLICA_SET)}
            before = sum(sets.values())
            sets[action.obj["metadata"]["name"]] = desired_replicas(action.obj)
            if sum(sets.values()) > max(before, desired_replicas(deployment) + surge):
                self.broken.append(f"{controller}: {sets} for {desired_replicas(deployment)} and {surge} more")
        if (action.verb, action.kind) == ("delete", POD):
            ready = [pod for pod in self.bench.pods() if is_ready(pod)]
            left = [pod for pod in ready if pod["metadata"]["name"] != action.obj["metadata"]["name"]]
            if len(left) < min(len(ready), desired_replicas(deployment) - unavailable):
                self.broken.append(
                    f"{controller}: {len(left)} of {desired_replicas(deployment)} less {unavailable} ready"
                )


@given(st.integers(1, 8), st.lists(STEP, max_size=25))
def test_a_rolling_update_keeps_its_bounds(replicas: int, steps: list[tuple[str, object]]) -> None:
    """The size and the budget only change when all is done: a change in between moves the bounds, not the Pods."""
    bounds = Bounds()
    bench = bounds.bench = Workbench(watch=bounds)
    bench.make(DEPLOYMENT, workload(replicas=replicas))
    bench.run_pods()
    for kind, value in steps:
        if kind in {"scale", "budget"}:
            bench.run_pods()
        step(bench, kind, value)
    finish(bench)
    assert bounds.broken == []


SETS = st.one_of(
    st.tuples(st.just("scale"), st.integers(0, 5)),
    st.tuples(st.just("image"), IMAGES),
    st.tuples(st.just("partition"), st.integers(0, 4)),
    st.tuples(st.just("ready"), st.integers(0, 9)),
    st.tuples(st.just("fail"), st.integers(0, 9)),
    st.tuples(st.just("vanish"), st.integers(0, 9)),
    st.tuples(st.just("work"), st.integers(1, 8)),
)


@given(st.sampled_from(["OrderedReady", "Parallel"]), st.lists(SETS, max_size=20), st.booleans())
def test_a_stateful_set_ends_as_it_is_wanted(policy: str, steps: list[tuple[str, object]], graceful: bool) -> None:
    bench = Workbench(graceful=graceful)
    bench.make(STATEFUL_SET, workload(replicas=2, podManagementPolicy=policy, serviceName="web"))
    for kind, value in steps:
        match kind, value:
            case "scale", _:
                bench.change(STATEFUL_SET, "web", replicas=value)
            case "image", str():
                bench.change(STATEFUL_SET, "web", template=template(value))
            case "partition", _:
                rolling = {"partition": value}
                bench.change(STATEFUL_SET, "web", updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling})
            case _:
                step(bench, kind, value)
    bench.change(STATEFUL_SET, "web", updateStrategy={"type": "RollingUpdate"})
    bench.run_pods(200)
    owner = bench.get(STATEFUL_SET, "web")
    assert bench.names(POD) == [f"web-{number}" for number in range(desired_replicas(owner))]
    assert {_image(pod["spec"]) for pod in bench.pods()} <= {_image(owner["spec"]["template"]["spec"])}
    status = owner["status"]
    assert status["currentRevision"] == status["updateRevision"]
    assert [status.get(name, 0) for name in ("readyReplicas", "updatedReplicas")] == [desired_replicas(owner)] * 2


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True, min_size=1),
    st.lists(IMAGES, max_size=4),
    st.sampled_from([{"maxUnavailable": 1}, {"maxUnavailable": 0, "maxSurge": 1}, {"maxUnavailable": "50%"}]),
    st.lists(st.tuples(st.sampled_from(["ready", "fail", "vanish", "work"]), st.integers(1, 9)), max_size=15),
)
def test_a_daemon_set_ends_with_one_new_pod_on_each_node(
    nodes: list[str], images: list[str], rolling: Json, steps: list[tuple[str, int]]
) -> None:
    bench, broken = Workbench(), list[str]()
    most = int_or_percent(rolling["maxUnavailable"], len(nodes), up=True)

    def watch(_controller: str, action: Action) -> None:
        """No deletion leaves fewer Nodes with an available Pod than the budget allows."""
        if (action.verb, action.kind) == ("delete", POD):
            ready = [pod for pod in bench.pods() if is_ready(pod)]
            left = {pod["spec"]["nodeName"] for pod in ready if pod["metadata"]["uid"] != action.obj["metadata"]["uid"]}
            if len(left) < min(len({pod["spec"]["nodeName"] for pod in ready}), len(nodes) - most):
                broken.append(f"{len(left)} of {len(nodes)} less {most}")

    bench.watch = watch
    for name in nodes:
        bench.node(name)
    bench.make(DAEMON_SET, workload(updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling}))
    for image in images or ["i:1"]:
        bench.change(DAEMON_SET, "web", template=template(image))
        for kind, value in steps:
            step(bench, kind, value)
    bench.run_pods(100)
    owner = bench.get(DAEMON_SET, "web")
    assert sorted(pod["spec"]["nodeName"] for pod in bench.pods()) == sorted(nodes)
    assert {_image(pod["spec"]) for pod in bench.pods()} == {_image(owner["spec"]["template"]["spec"])}
    assert broken == []
    assert owner["status"]["updatedNumberScheduled"] == owner["status"]["numberAvailable"] == len(nodes)


def _image(spec: Json) -> str:
    return str(spec["containers"][0]["image"])


@pytest.mark.parametrize("size", [0, 1, 130])
def test_large_sizes_are_reached_in_chunks(size: int) -> None:
    bench = Workbench()
    bench.make(DEPLOYMENT, workload(replicas=size))
    bench.settle()
    assert len(bench.pods()) == size
