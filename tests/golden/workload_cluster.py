"""A control plane that stands still between two steps: a test moves the clock, the controllers and the kubelet."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import NAMESPACE, NODE, POD, REPLICA_SET, REPLICATION_CONTROLLER, Json, Kind
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request
from kdns.controlplane.server.registry import Registry
from kdns.controlplane.server.registry import Request as ApiRequest
from kdns.controlplane.simulation.workloads.daemonset import DaemonSets
from kdns.controlplane.simulation.workloads.deployment import Deployments
from kdns.controlplane.simulation.workloads.job import Jobs
from kdns.controlplane.simulation.workloads.replicaset import ReplicaSets
from kdns.controlplane.simulation.workloads.statefulset import StatefulSets
from kdns.controlplane.storage.object_meta import timestamp
from kdns.controlplane.storage.store import Store, Subscription

START_S = 1_700_000_000.0
STEPS_MAX = 5000
_CONFLICT = 409


def template(image: str = "i:1", **labels: str) -> Json:
    """A Pod template with one container."""
    return {"metadata": {"labels": labels or {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}}


def workload(name: str = "web", replicas: int | None = None, image: str = "i:1", **spec: Any) -> Json:
    """A workload that selects its template's Pods by app=web."""
    sized = {} if replicas is None else {"replicas": replicas}
    selector = {"matchLabels": {"app": "web"}}
    return {"metadata": {"name": name}, "spec": {"selector": selector, "template": template(image), **sized, **spec}}


@dataclass
class Workbench:
    """A Registry with controllers, those of workloads by default. Nothing happens but by `settle` and its like.

    `watch` sees each write of a controller before it is done.
    """

    watch: Callable[[str, Action], None] | None = None
    graceful: bool = False
    now_s: float = START_S
    events: list[Event] = field(default_factory=list)
    steps: int = 0
    config: ClusterConfig = field(default_factory=ClusterConfig)
    store: Store = field(default_factory=Store)
    controllers: tuple[Reconciler, ...] = ()
    choose: Callable[[int], int] = lambda n: n // 2

    def __post_init__(self) -> None:
        numbers = count(self.store.revision)
        uid, suffix = (lambda: f"uid-{next(numbers)}"), (lambda: f"{next(numbers):05}")
        self.api = Registry(self.store, self.config, self.choose, lambda: self.now_s, uid, suffix)
        self.api.deletion.grace = self.graceful
        self.controllers = self.controllers or self.new_controllers()
        if not self.store.get(NAMESPACE, ("", "default")):
            self.make(NAMESPACE, {"metadata": {"name": "default"}})
        self._later: dict[tuple[int, Name], float] = {}
        self._queue: dict[tuple[int, Name], None] = {}
        self._subscriptions: dict[Kind, Subscription] = {
            kind: self.api.watch(ApiRequest(kind)) for controller in self.controllers for kind in controller.watches
        }

    def new_controllers(self) -> tuple[Reconciler, ...]:
        replicas = (ReplicaSets(kind) for kind in (REPLICA_SET, REPLICATION_CONTROLLER))
        return Deployments(), *replicas, StatefulSets(), DaemonSets(), Jobs()

    def make(self, kind: Kind, obj: Json) -> Json:
        """Create an object in `default`."""
        return self.api.create(_request(kind), obj).copy()

    def put(self, kind: Kind, obj: Json, subresource: str = "") -> Json:
        """Replace an object."""
        return self.api.update(_request(kind, obj["metadata"]["name"], subresource), obj).copy()

    def delete(self, kind: Kind, name: str, **options: Any) -> None:
        self.api.delete(_request(kind, name), options=options)

    def node(self, name: str, labels: Json | None = None, taints: list[Json] | None = None) -> None:
        """Add a node."""
        self.make(NODE, {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": taints or []}})

    def change(self, kind: Kind, name: str, **spec: Any) -> Json:
        """Change fields of a spec."""
        obj = self.get(kind, name)
        return self.put(kind, {**obj, "spec": {**obj["spec"], **spec}})

    def roll(self, kind: Kind, image: str) -> None:
        """Give workload `web` another image, and let everything follow."""
        self.change(kind, "web", template=template(image))
        self.run_pods()

    def get(self, kind: Kind, name: str) -> Json:
        """The object as it is stored."""
        return self.api.get(_request(kind, name))

    def all(self, kind: Kind) -> list[Json]:
        """All objects of a kind."""
        return self.api.list(ApiRequest(kind, "default" if kind.namespaced else None)).items

    def pods(self) -> list[Json]:
        """Pods that neither ended nor are being deleted, by name."""
        return [pod for pod in self.all(POD) if not pod["metadata"].get("deletionTimestamp") and not _ended(pod)]

    def names(self, kind: Kind = POD) -> list[str]:
        """Names of all objects of a kind."""
        return [obj["metadata"]["name"] for obj in self.all(kind)]

    def report(self, pod: Json, *, ready: bool = True, phase: str = "Running", node: str = "n1") -> None:
        """Say as a kubelet what became of a Pod."""
        pod = self.get(POD, pod["metadata"]["name"])
        if not pod["spec"].get("nodeName"):
            pod = self.put(POD, {**pod, "spec": {**pod["spec"], "nodeName": node}})
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "lastTransitionTime": timestamp(self.now_s),
        }
        status = {**pod.get("status", {}), "phase": phase, "conditions": [condition]}
        self.put(POD, {**pod, "status": status}, "status")

    def vanish(self, pod: Json) -> None:
        """End a Pod at once."""
        self.delete(POD, pod["metadata"]["name"], gracePeriodSeconds=0)

    def run_pods(self, steps: int = 50) -> None:
        """Make all Pods ready, end those that are leaving, and let the controllers go on, until nothing changes."""
        for _ in range(steps):
            self.settle()
            leaving = [pod for pod in self.all(POD) if pod["metadata"].get("deletionTimestamp")]
            waiting = [pod for pod in self.pods() if not is_ready(pod)]
            for pod in leaving:
                self.vanish(pod)
            for pod in waiting:
                self.report(pod)
            if not leaving and not waiting:
                return
        raise AssertionError("the Pods do not come to rest")

    def settle(self, steps: int = STEPS_MAX) -> bool:
        """Let the controllers work until they have nothing to do; False when `steps` were not enough."""
        for _ in range(steps):
            self._drain()
            if not self._queue:
                return True
            self._attempt(next(iter(self._queue)))
        return False

    def wait(self, seconds: float) -> None:
        """Let time pass, and the controllers look again at what is due."""
        self.now_s += seconds
        due = [task for task, at_s in self._later.items() if at_s <= self.now_s]
        for task in due:
            del self._later[task]
            self._queue.setdefault(task)
        self.settle()

    def _drain(self) -> None:
        for kind, subscription in self._subscriptions.items():
            for event in subscription.take():
                version = event.stored
                obj = None if event.type == "DELETED" else version.obj
                for place, controller in enumerate(self.controllers):
                    if kind in controller.watches:
                        for request in controller.observe(Change(kind, version.key, obj, version.revision)):
                            self._queue.setdefault((place, request))

    def _attempt(self, task: tuple[int, Name]) -> None:
        self.steps += 1
        del self._queue[task]
        self._later.pop(task, None)
        controller = self.controllers[task[0]]
        result = controller.reconcile(Request(task[1], self.now_s))
        try:
            for action in result.actions:
                if self.watch:
                    self.watch(controller.name, action)
                self._write(action)
        except StatusError as error:
            event = controller.failed(Request(task[1], 0), action, error) if error.code != _CONFLICT else None
            self.events += [event] if event else []
            self._later[task] = self.now_s + 1.0
        else:
            self.events += result.events
            if result.requeue_after_s is not None:
                self._later[task] = self.now_s + result.requeue_after_s

    def _write(self, action: Action) -> None:
        meta = action.obj["metadata"]
        key: Key = (meta.get("namespace", ""), meta.get("name", ""))
        match action.verb:
            case "create":
                self.api.create(ApiRequest(action.kind, key[0]), action.obj)
            case "update":
                self.api.update(ApiRequest(action.kind, *key, subresource=action.subresource), action.obj)
            case "delete":
                if self.api.store.get(action.kind, key):
                    self.api.delete(ApiRequest(action.kind, *key), options=action.options)


def _request(kind: Kind, name: str = "", subresource: str = "") -> ApiRequest:
    return ApiRequest(kind, "default" if kind.namespaced else "", name, subresource)


def is_ready(pod: Json) -> bool:
    """Whether the Pod is ready."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(row["type"] == "Ready" and row["status"] == "True" for row in conditions)


def _ended(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
