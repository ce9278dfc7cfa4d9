"""kubectl on what comes and goes: pruning, graceful deletion, owners, namespaces, nodes, Jobs. On a real `kdns up`."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kdns_process import DEADLINE_S, Running, kdns_up

NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {topology.kubernetes.io/zone: %s}}\n"
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: nginx, ports: [{containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: %d}}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with kdns_up(tmp_path_factory.mktemp("lifecycle")) as running:
        running.kubectl("apply", "-f", "-", stdin=f"{NODE % ('n1', 'a')}---\n{NODE % ('n2', 'b')}")
        running.kubectl("delete", "node", "kdns")
        yield running


@pytest.fixture
def space(cluster: Running, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """kubectl in a namespace of the test's own."""
    name = request.node.name.replace("_", "-").replace("[", "-").replace("]", "")[:60]
    cluster.kubectl("create", "namespace", name)

    def run(*args: str, stdin: str = "", check: bool = True) -> str:
        return cluster.kubectl("-n", name, *args, stdin=stdin, check=check)

    yield run
    cluster.kubectl("delete", "namespace", name, "--wait=false")
    run("delete", "pods", "--all", "--force", "--grace-period=0", check=False)


def until(ask: Callable[[], Any], wanted: Any) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while (got := ask()) != wanted:
        assert time.monotonic() < deadline_s, f"{got!r}, wanted {wanted!r}"
        time.sleep(0.1)


def names(run: Callable[..., str], *args: str) -> list[str]:
    return run("get", *args, "-o", "name").split()


def pods_ready(run: Callable[..., str], number: int) -> None:
    run("wait", "--for=condition=Ready", "pods", "-l", "app=web", "--timeout=60s")
    until(lambda: len(names(run, "pods", "-l", "app=web")), number)


def history(run: Callable[..., str], group: str, plural: str, since: str, name: str = "") -> list[dict[str, Any]]:
    """What a namespace's objects of a kind, or the one of this name, have been since a revision."""
    (namespace,) = {each["metadata"]["namespace"] for each in json.loads(run("get", plural, "-o", "json"))["items"]}
    path = f"{group}/namespaces/{namespace}/{plural}?watch=1&timeoutSeconds=1&resourceVersion={since}"
    events = map(json.loads, run("get", "--raw", path).splitlines())
    return [each["object"] for each in events if name in {"", each["object"]["metadata"]["name"]}]


def nodes_of(run: Callable[..., str]) -> list[str]:
    return sorted(run("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}").split())


def test_a_deleted_pod_drains_before_it_goes(space: Callable[..., str]) -> None:
    space("apply", "-f", "-", stdin=DEPLOYMENT % (1, 2))
    pods_ready(space, 1)
    (pod,) = names(space, "pods")
    began = space("get", pod, "-o", "jsonpath={.metadata.resourceVersion}")
    space("delete", pod, "--timeout=60s")

    def conditions(endpoint_slice: dict[str, Any]) -> set[tuple[bool, bool, bool]]:
        rows = [row["conditions"] for row in endpoint_slice["endpoints"] or ()]
        return {(row["ready"], row["serving"], row["terminating"]) for row in rows}

    def said() -> set[tuple[bool, bool, bool]]:
        found = json.loads(space("get", "endpointslices", "-l", "kubernetes.io/service-name=web", "-o", "json"))
        return {row for each in found["items"] for row in conditions(each)}

    until(said, {(True, True, False)})
    told = [each["metadata"] for each in history(space, "/api/v1", "pods", began, pod.removeprefix("pod/"))]
    assert [each.get("deletionGracePeriodSeconds") for each in told[:2]] == [30, 30]
    assert all("deletionTimestamp" in each for each in told), "it goes, and is there until then"
    slices = history(space, "/apis/discovery.k8s.io/v1", "endpointslices", began)
    assert {(False, True, True), (True, True, False)} in map(conditions, slices)


def test_drain_moves_pods(cluster: Running, space: Callable[..., str]) -> None:
    until(lambda: cluster.kubectl("get", "pods", "-A", "-o", "name"), "")  # of the tests before
    space("apply", "-f", "-", stdin=DEPLOYMENT % (4, 1))
    stored = space("create", "pdb", "web", "--selector=app=web", "--min-available=4")
    assert "but nothing in this control plane acts on it" in stored
    assert space("get", "pdb", "web", "--no-headers").split()[:4] == ["web", "4", "<none>", "0"]
    pods_ready(space, 4)
    assert nodes_of(space) == ["n1", "n1", "n2", "n2"], "spread"
    cluster.kubectl("cordon", "n2")
    assert "SchedulingDisabled" in cluster.kubectl("get", "node", "n2")
    assert "n2 drained" in cluster.kubectl("drain", "n2", "--ignore-daemonsets", "--force", "--timeout=60s")
    pods_ready(space, 4)
    assert nodes_of(space) == ["n1"] * 4
    cluster.kubectl("uncordon", "n2")


def test_jobs_are_done(space: Callable[..., str]) -> None:
    space("create", "cronjob", "often", "--image=busybox", "--schedule=*/5 * * * *", "--", "true")
    space("create", "job", "once", "--from=cronjob/often")
    space("wait", "--for=condition=complete", "job/once", "--timeout=60s")
    row = space("get", "job", "once", "--no-headers").split()
    assert row[:3] == ["once", "Complete", "1/1"]
    assert "Completed" in space("get", "pods")
    space("delete", "job", "once")
    until(lambda: names(space, "pods"), [])
