"""Odd objects, which the API takes, stop no controller; nor does a controller that cannot read one of them."""

from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import pytest
from structlog.testing import capture_logs
from test_controllers import Cluster

from kdns.controlplane.apimachinery.kinds import (
    CONFIG_MAP,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    NAMESPACE,
    NODE,
    POD,
    SERVICE_CIDR,
    STATEFUL_SET,
    Json,
    Kind,
)
from kdns.controlplane.controllers.io import controller_manager
from kdns.controlplane.controllers.io.controller_manager import ControllerManager
from kdns.controlplane.controllers.reconciler import Action, Change, Name, Reconciler, Request, Result
from kdns.controlplane.server.patch import MERGE_PATCH
from kdns.controlplane.server.registry import Request as ApiRequest
from kdns.controlplane.server.subresources import evict

T = TypeVar("T")

READY = {"type": "Ready", "status": "True"}
POD_ON_IT: Json = {"metadata": {"name": "p"}, "spec": {"nodeName": "odd", "containers": [{"name": "c", "image": "i"}]}}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    cluster.controllers.start()
    await cluster.settled()
    yield cluster
    cluster.controllers.close()


@pytest.mark.parametrize(
    "status",
    [
        {"addresses": [{"type": "InternalIP"}]},
        {"conditions": [READY], "addresses": [{"type": "InternalIP"}]},
        {"conditions": [READY], "addresses": [{"type": "ExternalIP", "address": "192.0.2.1"}]},
        {"conditions": [READY]},
    ],
)
async def test_nodes_of_odd_addresses(cluster: Cluster, status: Json) -> None:
    with capture_logs() as logs:
        cluster.make(NODE, {"metadata": {"name": "odd"}, "status": status})
        cluster.make(POD, POD_ON_IT)
        await cluster.settled()
        assert cluster.api.get(ApiRequest(POD, "default", "p"))["status"]["phase"] == "Running"
        evict(cluster.api, ApiRequest(POD, "default", "p", dry_run=True), {"metadata": {"name": "p"}})
    assert logs == []


TEMPLATE: Json = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
SETS: Json = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
TWICE: Json = {
    "spec": {"completions": 2, "parallelism": 1, "template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}
}
UNTYPED: Json = {"conditions": [{"status": "True"}, {"type": "Ready"}]}


@pytest.mark.parametrize(
    ("kind", "obj", "status"),
    [
        (NAMESPACE, {}, UNTYPED),
        (NODE, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, UNTYPED),
        (SERVICE_CIDR, {"spec": {"cidrs": ["10.9.0.0/24"]}}, UNTYPED),
        (DEPLOYMENT, SETS, UNTYPED),
        (DAEMON_SET, SETS, UNTYPED),
        (STATEFUL_SET, SETS, UNTYPED),
        (JOB, TWICE, UNTYPED),
        (JOB, TWICE, {"conditions": [{"type": "Complete", "status": "True"}]}),
    ],
)
async def test_odd_statuses(cluster: Cluster, kind: Kind, obj: Json, status: Json) -> None:
    with capture_logs() as logs:
        cluster.make(DAEMON_SET, {"metadata": {"name": "on-each-node"}, **SETS})
        made = cluster.make(kind, {"metadata": {"name": "odd"}, **obj})
        space = made["metadata"].get("namespace", "")
        cluster.api.patch(ApiRequest(kind, space, "odd", subresource="status"), MERGE_PATCH, {"status": status})
        await cluster.settled()
        cluster.api.delete(ApiRequest(kind, space, "odd"))
        await cluster.settled()
    assert logs == []
    assert not cluster.exists(kind, "odd")


class Choosy(Reconciler):
    """Reads all objects but one, and counts what it reads."""

    name = "choosy"
    watches = (CONFIG_MAP,)

    def __init__(self) -> None:
        self.read: list[str] = []

    def observe(self, change: Change) -> Iterable[Name]:
        if change.key[1] == "odd":
            raise KeyError(change.key)
        self.read.append(change.key[1])
        return ()

    def reconcile(self, _request: Request) -> Result:
        return Result()


async def test_what_a_controller_cannot_read_is_left_out(cluster: Cluster) -> None:
    choosy = Choosy()
    cluster.controllers.close()
    cluster.controllers = ControllerManager(cluster.api, lambda: [choosy])
    cluster.controllers.start()
    with capture_logs() as logs:
        for name in ("a", "odd", "b"):
            cluster.make(CONFIG_MAP, {"metadata": {"name": name}})
        await cluster.settled()
    assert choosy.read == ["a", "b"]
    assert [log["event"] for log in logs] == ["controller failed to observe"]


class Maker(Choosy):
    """Makes a ConfigMap in each Namespace, again and again."""

    name = "maker"
    watches = (NAMESPACE,)

    def observe(self, change: Change) -> Iterable[Name]:
        return ((change.key[1],),)

    def reconcile(self, request: Request) -> Result:
        (namespace,) = request.name
        self.read.append(namespace)
        return Result((Action("create", CONFIG_MAP, {"metadata": {"generateName": "a-", "namespace": namespace}}),))


async def test_nobody_insists_on_what_goes_with_its_namespace(cluster: Cluster) -> None:
    cluster.controllers.close()
    held = {"metadata": {"name": "held", "finalizers": ["example.com/a"]}}
    cluster.make(NAMESPACE, held)
    cluster.api.delete(ApiRequest(NAMESPACE, "", "held"))
    maker = Maker()
    cluster.controllers = ControllerManager(cluster.api, lambda: [maker])
    with capture_logs() as logs:
        cluster.controllers.start()
        await cluster.settled()
    assert "held" in maker.read
    assert [log["event"] for log in logs] == ["controller stops"]


class MakerOfMany(Maker):
    """Makes many ConfigMaps at once."""

    def reconcile(self, request: Request) -> Result:
        (action,) = super().reconcile(request).actions
        return Result((action,) * 50)


async def test_progress_counts_what_is_done_and_left(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_manager, "TIME_SLICE_S", 0.0)
    monkeypatch.setattr(controller_manager, "PROGRESS_S", 0.0)
    cluster.controllers.close()
    for number in range(10):
        cluster.make(NAMESPACE, {"metadata": {"name": f"n{number}"}})
    cluster.controllers = ControllerManager(cluster.api, lambda: [MakerOfMany()])
    cluster.controllers.start()
    told: list[tuple[int, int]] = []
    await cluster.controllers.finished(lambda done, left: told.append((done, left)))
    spaces = len(cluster.api.list(ApiRequest(NAMESPACE)).items)
    done, left = zip(*told, strict=True)
    assert list(done) == sorted(done)
    assert 2 < len({*done}) <= spaces
    assert 0 < max(left) <= spaces
