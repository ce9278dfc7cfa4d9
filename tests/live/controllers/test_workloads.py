"""Workloads as a person meets them: an application's manifests, real kubectl, and the names that come of it."""

import re
from collections.abc import Iterator

import pytest
from expecting import until_as
from kdns_process import ROOT, Running, kdns_up

APPLICATION = """
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {selector: {app: front}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: front}
spec:
  replicas: 2
  selector: {matchLabels: {app: front}}
  template:
    metadata: {labels: {app: front}}
    spec: {containers: [{name: front, image: "front:1", ports: [{name: http, containerPort: 8080}]}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: "agent:1"}]}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: unheard-of}
"""
ZONE = "default.svc.cluster.local"


def manual() -> str:
    """The manifest of docs/up.md."""
    section = (ROOT / "docs" / "up.md").read_text("utf-8").partition("## Workloads\n")[2]
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("workloads")
    (folder / "app").mkdir()
    (folder / "app" / "app.yaml").write_text(APPLICATION)
    with kdns_up(folder, str(folder / "app")) as running:
        running.kubectl("apply", "-f", "-", stdin=manual())
        running.kubectl("rollout", "status", "statefulset/web", "--timeout=60s")
        yield running


def names(running: Running, *what: str) -> list[str]:
    return running.kubectl("get", *what, "-o", "jsonpath={.items[*].metadata.name}").split()


def image(running: Running, *what: str) -> list[str]:
    return running.kubectl("get", *what, "-o", "jsonpath={.items[*].spec.containers[0].image}").split()


def test_unknown_kinds_are_told_once(running: Running) -> None:
    told = [line for line in running.lines if "Widget" in line]
    assert len(told) == 1
    assert "kind: skipped: example.com/v1 Widget is not served" in told[0]
    refused = running.kubectl("apply", "-f", "-", stdin=APPLICATION.rpartition("---")[2], check=False)
    assert 'no matches for kind "Widget" in version "example.com/v1"' in refused


def test_a_rollout_and_back(running: Running) -> None:
    running.kubectl("set", "image", "deployment/front", "front=front:2")
    out = running.kubectl("rollout", "status", "deployment/front", "--timeout=60s")
    assert out.endswith('deployment "front" successfully rolled out\n')
    until_as(["front:2"] * 2, lambda: image(running, "pods", "-l", "app=front"), "seen")
    history = running.kubectl("rollout", "history", "deployment/front")
    assert re.findall(r"^(\d+) ", history, re.MULTILINE) == ["1", "2"]
    running.kubectl("rollout", "undo", "deployment/front")
    running.kubectl("rollout", "status", "deployment/front", "--timeout=60s")
    until_as(["front:1"] * 2, lambda: image(running, "pods", "-l", "app=front"), "seen")
    history = running.kubectl("rollout", "history", "deployment/front")
    assert re.findall(r"^(\d+) ", history, re.MULTILINE) == ["2", "3"]
    assert "front:2" in running.kubectl("rollout", "history", "deployment/front", "--revision=2")
    before = names(running, "pods", "-l", "app=front")
    running.kubectl("rollout", "restart", "deployment/front")
    running.kubectl("rollout", "status", "deployment/front", "--timeout=60s")
    until_as(set(), lambda: set(before) & set(names(running, "pods", "-l", "app=front")), "seen")


@pytest.mark.parametrize(
    ("kind", "name", "container"), [("statefulset", "web", "nginx"), ("daemonset", "agent", "agent")]
)
def test_revisions_and_back(running: Running, kind: str, name: str, container: str) -> None:
    template = ("-o", "jsonpath={.spec.template.spec.containers[0].image}")
    old = running.kubectl("get", kind, name, *template)
    for command, wanted in (("set image {} {}=other:2", "other:2"), ("rollout undo {}", old)):
        running.kubectl(*command.format(f"{kind}/{name}", container).split())
        running.kubectl("rollout", "status", f"{kind}/{name}", "--timeout=60s")
        assert running.kubectl("get", kind, name, *template) == wanted
        until_as({wanted}, lambda: set(image(running, "pods", "-l", f"app={container}")), "seen")
    history = running.kubectl("rollout", "history", f"{kind}/{name}")
    assert re.findall(r"^(\d+) ", history, re.MULTILINE) == ["2", "3"]
