"""kubectl on what comes and goes: pruning, graceful deletion, owners, namespaces, nodes, Jobs. On a real `kdns up`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
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
APPLICATION = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: x}}
data: {k: v}
---
apiVersion: v1
kind: Secret
metadata: {name: password, labels: {app: x}}
stringData: {k: v}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk, labels: {app: x}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, labels: {app: x}}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
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


@pytest.mark.parametrize("allowed", [[], ["--prune-allowlist=core/v1/ConfigMap", "--prune-allowlist=core/v1/Secret"]])
def test_apply_prunes(space: Callable[..., str], tmp_path: Path, allowed: list[str]) -> None:
    file = tmp_path / "app.yaml"
    for text in (APPLICATION, APPLICATION.split("---", maxsplit=1)[0]):
        file.write_text(text)
        space("apply", "--prune", "-l", "app=x", "-f", str(tmp_path), *allowed)
    kept = ["ingress.networking.k8s.io/web", "persistentvolumeclaim/disk"] if allowed else []
    found = names(space, "configmap,secret,ingress,pvc", "-l", "app=x")
    assert sorted(found) == ["configmap/settings", *kept]


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


def test_force_takes_a_pod_at_once(space: Callable[..., str]) -> None:
    space("apply", "-f", "-", stdin=DEPLOYMENT % (1, 25))
    pods_ready(space, 1)
    (pod,) = names(space, "pods")
    space("delete", pod, "--wait=false")
    assert "Terminating" in space("get", pod)
    assert "force deleted" in space("delete", pod, "--force", "--grace-period=0")
    assert pod not in names(space, "pods")


@pytest.mark.parametrize(("cascade", "left"), [("background", 0), ("foreground", 0), ("orphan", 2)])
def test_delete_cascades(space: Callable[..., str], cascade: str, left: int) -> None:
    space("apply", "-f", "-", stdin=DEPLOYMENT % (2, 0))
    pods_ready(space, 2)
    space("delete", "deployment", "web", f"--cascade={cascade}", "--timeout=60s")
    until(lambda: len(names(space, "pods")), left)
    assert len(names(space, "replicasets")) == (1 if left else 0)


def test_a_finalizer_holds_until_it_is_taken_away(space: Callable[..., str]) -> None:
    space("create", "configmap", "held")
    space("patch", "configmap", "held", "-p", '{"metadata":{"finalizers":["example.com/a"]}}')
    space("delete", "configmap", "held", "--wait=false")
    assert names(space, "configmaps") == ["configmap/held"]
    space("patch", "configmap", "held", "--type=json", "-p", '[{"op":"remove","path":"/metadata/finalizers"}]')
    assert names(space, "configmaps") == []


def test_a_namespace_says_what_holds_it(cluster: Running) -> None:
    cluster.kubectl("create", "namespace", "held")
    cluster.kubectl("-n", "held", "create", "configmap", "c")
    cluster.kubectl("-n", "held", "patch", "cm", "c", "-p", '{"metadata":{"finalizers":["example.com/a"]}}')
    cluster.kubectl("delete", "namespace", "held", "--wait=false")
    said = cluster.kubectl("describe", "namespace", "held")
    assert "Some resources are remaining: configmaps. has 1 resource instances" in said
    late = cluster.kubectl("-n", "held", "create", "configmap", "late", check=False)
    assert "unable to create new content in namespace held because it is being terminated" in late
    namespace = json.loads(cluster.kubectl("get", "namespace", "held", "-o", "json"))
    namespace["spec"] = {}
    path = "/api/v1/namespaces/held/finalize"
    cluster.kubectl("replace", "--raw", path, "-f", "-", stdin=json.dumps(namespace))
    cluster.kubectl("wait", "--for=delete", "namespace/held", "--timeout=60s")


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


def test_pods_leave_with_their_node_and_wait_for_another(cluster: Running, space: Callable[..., str]) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=NODE % ("spare", "c"))
    pinned = (DEPLOYMENT % (1, 0)).replace(
        "    spec:\n", "    spec:\n      nodeSelector: {kubernetes.io/hostname: spare}\n"
    )
    space("apply", "-f", "-", stdin=pinned)
    pods_ready(space, 1)
    assert nodes_of(space) == ["spare"]
    slices = "jsonpath={.items[0].endpoints[0].zone}"
    until(lambda: space("get", "endpointslices", "-o", slices), "c")
    cluster.kubectl("label", "node", "spare", "topology.kubernetes.io/zone=d", "--overwrite")
    until(lambda: space("get", "endpointslices", "-o", slices), "d")
    cluster.kubectl("delete", "node", "spare")
    until(lambda: space("get", "pods", "-o", "jsonpath={.items[*].status.phase}"), "Pending")
    said = space("get", "events", "--field-selector", "reason=FailedScheduling")
    assert "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector." in said
    cluster.kubectl("apply", "-f", "-", stdin=NODE % ("spare", "c"))
    pods_ready(space, 1)
    cluster.kubectl("delete", "node", "spare")


def test_jobs_are_done(space: Callable[..., str]) -> None:
    space("create", "cronjob", "often", "--image=busybox", "--schedule=*/5 * * * *", "--", "true")
    space("create", "job", "once", "--from=cronjob/often")
    space("wait", "--for=condition=complete", "job/once", "--timeout=60s")
    row = space("get", "job", "once", "--no-headers").split()
    assert row[:3] == ["once", "Complete", "1/1"]
    assert "Completed" in space("get", "pods")
    space("delete", "job", "once")
    until(lambda: names(space, "pods"), [])


def test_what_applications_bring_along(space: Callable[..., str]) -> None:
    space("create", "configmap", "c", "--from-literal=a=b", "--from-literal=c=d")
    space("create", "secret", "generic", "s", "--from-literal=password=secret")
    space("create", "serviceaccount", "robot")
    space("create", "ingress", "web", "--class=nginx", "--rule=example.com/*=web:80")
    assert space("get", "configmap", "c", "--no-headers").split()[:2] == ["c", "2"]
    assert space("get", "secret", "s", "-o", "jsonpath={.data.password}") == "c2VjcmV0"
    assert set(names(space, "serviceaccounts")) == {"serviceaccount/default", "serviceaccount/robot"}
    assert space("get", "ingress", "web", "--no-headers").split()[:3] == ["web", "nginx", "example.com"]
    assert "base64" in space("explain", "configmap.binaryData")
    bad = space("create", "secret", "generic", "t", "--type=kubernetes.io/tls", check=False)
    assert 'Secret "t" is invalid: [data[tls.crt]: Required value, data[tls.key]: Required value]' in bad
