"""The controllers on a real Registry in this process: what clients write, and what follows by itself."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import count
from time import time

import pytest

from kdns.controlplane.apimachinery.errors import StatusError, conflict, forbidden
from kdns.controlplane.apimachinery.kinds import (
    DAEMON_SET,
    ENDPOINT_SLICE,
    ENDPOINTS,
    EVENT,
    JOB,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    SERVICE,
    STATEFUL_SET,
    Json,
    Kind,
)
from kdns.controlplane.bootstrap import Listening, establish, initial_objects
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.io import controller_manager
from kdns.controlplane.controllers.io.controller_manager import ControllerManager
from kdns.controlplane.controllers.table import controllers_of
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage import store
from kdns.controlplane.storage.listing import ListOptions
from kdns.controlplane.storage.store import Store, StoredObject

NOW = "2026-01-01T00:00:00Z"


def choose(n: int) -> int:
    return n // 2


@dataclass
class Cluster:
    """A fresh cluster; `settled` waits until the controllers have nothing left to do."""

    config: ClusterConfig = field(default_factory=ClusterConfig)

    def __post_init__(self) -> None:
        numbers = count(1)
        uid, suffix = (lambda: f"uid-{next(numbers)}"), (lambda: f"{next(numbers):05}")
        self.api = Registry(Store(), self.config, choose, time, uid, suffix, grace=True)
        objects = initial_objects(self.config, NOW, Listening("127.0.0.1", 8001), Listening("127.0.0.1", 1053))
        establish(self.api, objects)
        self.controllers = ControllerManager(self.api, lambda: controllers_of(self.config, choose))

    async def settled(self) -> None:
        await asyncio.sleep(0)
        async with asyncio.timeout(240):
            await self.controllers.idle.wait()

    def make(self, kind: Kind, obj: Json) -> Json:
        return self.api.create(Request(kind, "default" if kind.namespaced else ""), obj).copy()

    def slices(self, service: str) -> list[Json]:
        selector = f"kubernetes.io/service-name={service}"
        return self.api.list(Request(ENDPOINT_SLICE, "default"), ListOptions(label_selector=selector)).items

    def addresses(self, service: str) -> list[str]:
        """Addresses of ready endpoints in the Service's slices."""
        return sorted(
            address
            for endpoint_slice in self.slices(service)
            for endpoint in endpoint_slice.get("endpoints") or ()
            if endpoint["conditions"].get("ready")
            for address in endpoint["addresses"]
        )

    def subsets(self, service: str) -> list[Json]:
        found: list[Json] = self.api.get(Request(ENDPOINTS, "default", service)).get("subsets", [])
        return found

    def exists(self, kind: Kind, name: str) -> bool:
        return self.api.store.get(kind, ("default" if kind.namespaced else "", name)) is not None


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    made.controllers.start()
    await made.settled()
    yield made
    made.controllers.close()


def service(name: str = "web", **spec: object) -> Json:
    return {"metadata": {"name": name}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}], **spec}}


def pod(name: str = "web-1", *, status: Json | None = None, **spec: object) -> Json:
    containers = [{"name": "main", "image": "web", "ports": [{"name": "http", "containerPort": 8080}]}]
    obj = {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"containers": containers, **spec}}
    return {**obj, "status": status} if status else obj


async def test_pods_become_ready_and_endpoints_follow(cluster: Cluster) -> None:
    cluster.make(SERVICE, service(ports=[{"port": 80, "targetPort": "http"}]))
    cluster.make(POD, pod("web-1"))
    cluster.make(POD, pod("web-2"))
    await cluster.settled()
    pods = cluster.api.list(Request(POD, "default")).items
    ips = sorted(each["status"]["podIP"] for each in pods)
    assert {each["status"]["phase"] for each in pods} == {"Running"}
    assert {each["spec"]["nodeName"] for each in pods} == {"kdns"}
    assert len(set(ips)) == 2
    assert cluster.addresses("web") == ips
    assert cluster.slices("web")[0]["ports"] == [{"name": "", "protocol": "TCP", "port": 8080}]
    assert [address["ip"] for address in cluster.subsets("web")[0]["addresses"]] == ips


async def test_events_are_written_after_all_other_work(cluster: Cluster) -> None:
    cluster.make(SERVICE, service())
    for number in range(3):
        cluster.make(POD, pod(f"web-{number}"))
    await cluster.settled()
    last_write = max(
        int(item["metadata"]["resourceVersion"])
        for kind in (POD, ENDPOINTS, ENDPOINT_SLICE)
        for item in cluster.api.list(Request(kind, "default")).items
    )
    async with asyncio.timeout(60):
        while len(events := cluster.api.list(Request(EVENT, "default")).items) < 3:  # noqa: ASYNC110 - the store has no event
            await asyncio.sleep(0.01)
    assert {event["reason"] for event in events} == {"Scheduled"}
    assert min(int(event["metadata"]["resourceVersion"]) for event in events) > last_write


async def test_events_that_wait_survive_a_restart_of_the_controllers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_manager, "TIME_SLICE_S", 0.0)
    for number in range(3):
        cluster.make(POD, pod(f"web-{number}"))
    await cluster.settled()
    assert len(cluster.api.list(Request(EVENT, "default")).items) < 3
    cluster.controllers.start()
    async with asyncio.timeout(60):
        while len(cluster.api.list(Request(EVENT, "default")).items) < 3:  # noqa: ASYNC110 - the store has no event
            await asyncio.sleep(0.01)


async def test_a_service_made_again_at_once_gets_its_own_endpoints(cluster: Cluster) -> None:
    cluster.make(SERVICE, service())
    cluster.make(POD, pod())
    await cluster.settled()
    cluster.api.delete(Request(SERVICE, "default", "web"))
    again = cluster.make(SERVICE, service())
    await cluster.settled()
    assert len(cluster.addresses("web")) == 1
    assert {
        owner["uid"]
        for endpoint_slice in cluster.slices("web")
        for owner in endpoint_slice["metadata"]["ownerReferences"]
    } == {again["metadata"]["uid"]}
    assert cluster.subsets("web")


@pytest.mark.parametrize("kind", [ENDPOINTS, ENDPOINT_SLICE])
async def test_what_others_delete_is_made_again(cluster: Cluster, kind: Kind) -> None:
    cluster.make(SERVICE, service())
    cluster.make(POD, pod())
    await cluster.settled()
    name = "web" if kind == ENDPOINTS else cluster.slices("web")[0]["metadata"]["name"]
    cluster.api.delete(Request(kind, "default", name))
    await cluster.settled()
    assert len(cluster.addresses("web")) == len(cluster.subsets("web")) == 1


async def test_losing_the_selector_ends_the_slices(cluster: Cluster) -> None:
    made = cluster.make(SERVICE, service())
    cluster.make(POD, pod())
    await cluster.settled()
    spec = {key: value for key, value in made["spec"].items() if key != "selector"}
    cluster.api.update(Request(SERVICE, "default", "web"), {**made, "spec": spec})
    await cluster.settled()
    managers = {
        endpoint_slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"]
        for endpoint_slice in cluster.slices("web")
    }
    assert managers == {"endpointslicemirroring-controller.k8s.io"}


async def test_a_pod_that_drains_goes_when_its_time_is_up(cluster: Cluster) -> None:
    sleeps = {"preStop": {"sleep": {"seconds": 1}}}
    cluster.make(POD, pod(containers=[{"name": "c", "image": "i", "lifecycle": sleeps}]))
    await cluster.settled()
    cluster.api.delete(Request(POD, "default", "web-1"))
    await cluster.settled()
    assert cluster.exists(POD, "web-1")
    await poll(lambda: not cluster.exists(POD, "web-1"))


async def test_a_flood_of_events_closes_the_watch_and_nothing_is_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = cluster.controllers._subscriptions[POD]  # noqa: SLF001 - what is closed
    monkeypatch.setattr(store, "QUEUE_EVENTS", 1000)
    for number in range(1050):
        cluster.make(
            POD, pod(f"p{number}", status={"podIP": f"10.1.{number // 250}.{number % 250}", "phase": "Succeeded"})
        )
    assert watch.closed
    cluster.make(SERVICE, service(selector={"none": "such"}))
    await cluster.settled()
    assert cluster.exists(ENDPOINTS, "web")
    cluster.make(POD, pod())
    await cluster.settled()
    assert cluster.api.get(Request(POD, "default", "web-1"))["status"]["phase"] == "Running"


async def test_a_conflict_is_tried_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.make(SERVICE, service())
    await cluster.settled()
    real, failures = cluster.api.update, [0]

    def refuse(*args: object, **kwargs: object) -> StoredObject:
        if failures[0] < 3:
            failures[0] += 1
            raise StatusError(409, "Conflict", "somebody was faster")
        return real(*args, **kwargs)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(cluster.api, "update", refuse)
    cluster.make(POD, pod())
    await poll(lambda: len(cluster.addresses("web")) == 1)
    assert failures == [3]


async def poll(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(240):
        while not reached():  # noqa: ASYNC110  # there is no event for what the test waits for
            await asyncio.sleep(0.002)


async def test_servers_that_move_are_found_after_a_restart(cluster: Cluster) -> None:
    objects = initial_objects(cluster.config, NOW, Listening("127.0.0.2", 9001), Listening("::", 53))
    establish(cluster.api, objects)
    assert cluster.addresses("kubernetes") == ["127.0.0.2"]
    assert cluster.subsets("kubernetes")[0]["ports"][0]["port"] == 9001
    dns = cluster.api.get(Request(ENDPOINT_SLICE, "kube-system", "kube-dns"))
    assert (dns["addressType"], dns["endpoints"][0]["addresses"]) == ("IPv6", ["::1"])


async def test_others_have_their_turns_while_a_large_namespace_goes(cluster: Cluster) -> None:
    cluster.api.create(Request(NAMESPACE), {"metadata": {"name": "large"}})
    for number in range(400):
        cluster.api.create(Request(SERVICE, "large"), service(f"s{number}"))
    await cluster.settled()
    cluster.api.delete(Request(NAMESPACE, "", "large"))
    left = [len(cluster.api.list(Request(SERVICE, "large")).stored)]
    async with asyncio.timeout(240):
        while left[-1]:
            await asyncio.sleep(0)
            left.append(len(cluster.api.list(Request(SERVICE, "large")).stored))
    assert 300 <= left[0] < 400, "the request itself does a little of it"
    assert len(set(left)) > 3, "and the rest takes several turns"
    await cluster.settled()
    with pytest.raises(StatusError, match="not found"):
        cluster.api.get(Request(NAMESPACE, "", "large"))
    assert not cluster.api.list(Request(ENDPOINT_SLICE, "large")).stored


TEMPLATE: Json = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web"}]}}
WORKLOAD: Json = {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
ONCE: Json = {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}
REFUSED = forbidden(POD, "web", "no more today")
CONFLICT = conflict(POD, "web", "changed")
WORKLOADS: list[tuple[Kind, Json]] = [
    (REPLICATION_CONTROLLER, {"selector": {"app": "web"}, "template": TEMPLATE}),
    (REPLICA_SET, WORKLOAD),
    (STATEFUL_SET, {**WORKLOAD, "serviceName": "web"}),
    (DAEMON_SET, WORKLOAD),
    (JOB, ONCE),
]


@pytest.mark.parametrize(("kind", "spec"), WORKLOADS, ids=[kind.kind for kind, _ in WORKLOADS])
@pytest.mark.parametrize(
    ("verb", "error", "reasons"),
    [
        ("create", REFUSED, {"FailedCreate"}),
        ("create", CONFLICT, set()),
        ("update", REFUSED, set()),
        ("update", CONFLICT, set()),
    ],
)
async def test_only_a_refused_pod_is_a_warning_of_its_workload(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    spec: Json,
    verb: str,
    error: StatusError,
    reasons: set[str],
) -> None:
    real, refusals, accepted = getattr(cluster.api, verb), iter([error] * 3), asyncio.Event()

    def write(request: Request, obj: Json) -> StoredObject:
        is_meant = request.kind is (POD if verb == "create" else kind)
        if is_meant and (refusal := next(refusals, None)):
            raise refusal
        stored: StoredObject = real(request, obj)
        if is_meant:
            accepted.set()
        return stored

    cluster.make(kind, {"metadata": {"name": "web"}, "spec": spec})
    monkeypatch.setattr(cluster.api, verb, write)
    await asyncio.wait_for(accepted.wait(), 60)
    await cluster.settled()
    events = cluster.api.list(Request(EVENT)).items
    found = {event["reason"] for event in events if event["type"] == "Warning"}
    assert found == reasons


async def test_a_terminating_namespace_leaves_no_count_of_failures(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refusals, ended = cluster.api.create, iter([REFUSED, REFUSED]), asyncio.Event()

    def create(request: Request, obj: Json) -> StoredObject:
        if request.kind is POD:
            if (error := next(refusals, namespace_ends)) is namespace_ends:
                ended.set()
            raise error
        return real(request, obj)

    cluster.api.create(Request(NAMESPACE), {"metadata": {"name": "x", "finalizers": ["example.com/hold"]}})
    cluster.api.delete(Request(NAMESPACE, "", "x"))
    with pytest.raises(StatusError) as raised:
        cluster.api.create(Request(POD, "x"), pod())
    namespace_ends = raised.value
    monkeypatch.setattr(cluster.api, "create", create)
    cluster.make(REPLICA_SET, {"metadata": {"name": "web"}, "spec": WORKLOAD})
    await asyncio.wait_for(ended.wait(), 60)
    await cluster.settled()
    assert cluster.controllers._failures == {}  # noqa: SLF001 - what nobody reads must not grow


async def test_old_labels_of_nodes_have_the_values_of_new_ones(cluster: Cluster) -> None:
    """Manifests of before 1.14 select Nodes by them; kubelets and cloud providers set both."""
    label, old = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
    cluster.make(NODE, {"metadata": {"name": "other", "labels": {label: "plan9"}}})
    cluster.make(POD, pod(nodeSelector={old: "plan9"}))
    await cluster.settled()
    assert cluster.api.get(Request(POD, "default", "web-1"))["spec"]["nodeName"] == "other"
    node = cluster.api.get(Request(NODE, "", "other"))
    node["metadata"]["labels"][label] = "inferno"
    cluster.api.update(Request(NODE, "", "other"), node)
    await cluster.settled()
    assert cluster.api.get(Request(NODE, "", "other"))["metadata"]["labels"][old] == "inferno"
