"""Controllers over an API without a loop: `settle` feeds events and writes until nobody has anything to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from served_kinds import KINDS

from kdns.controlplane.apimachinery.kinds import SERVICE, Json, Kind
from kdns.controlplane.bootstrap import establish, initial_objects
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.reconciler import Change, Event, Reconciler, Request
from kdns.controlplane.server.registry import Registry
from kdns.controlplane.server.registry import Request as ApiRequest
from kdns.controlplane.storage.store import Store, StoredObject, Subscription

START_S = 1_700_000_000.0


@dataclass
class Stepper:
    """One cluster and the controllers under test; `now_s` is its clock, `told` what they said."""

    config: ClusterConfig
    objects: tuple[StoredObject, ...] = ()
    revision: int = 1
    now_s: float = START_S
    told: list[Event] = field(default_factory=list)
    requeue_after_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        numbers = count(self.revision)
        store = Store(self.objects, revision=self.revision)
        self.api = Registry(
            store, self.config, lambda _: 0, lambda: self.now_s, lambda: f"uid-{next(numbers)}", lambda: "x"
        )
        establish(self.api, initial_objects(self.config, "2023-11-14T22:13:20Z"))
        self._watched: list[tuple[Reconciler, Kind, Subscription]] = []

    def run(self, *controllers: Reconciler) -> None:
        """Let controllers learn of everything, and settle."""
        for controller in controllers:
            self._watched += [(controller, kind, self.api.watch(ApiRequest(kind))) for kind in controller.watches]
        self.settle()

    def settle(self) -> None:
        """Until nothing is left; the subjects that want to be looked at later are looked at after their seconds."""
        for _ in range(100):
            asked = {}
            for controller, kind, subscription in self._watched:
                for event in subscription.take():
                    obj = None if event.type == "DELETED" else event.stored.obj
                    for request in controller.observe(Change(kind, event.stored.key, obj, event.stored.revision)):
                        asked[id(controller), request] = controller
            if not asked:
                return
            for (_, request), controller in asked.items():
                self.look(controller, *request)
        raise AssertionError("the controllers find no rest")

    def look(self, controller: Reconciler, *request: str) -> None:
        """One look at a subject, and what comes of it."""
        result = controller.reconcile(Request(request, self.now_s))
        self.told += result.events
        self.requeue_after_s += [] if result.requeue_after_s is None else [result.requeue_after_s]
        for action in result.actions:
            meta = action.obj["metadata"]
            namespace, name = meta.get("namespace", ""), meta.get("name", "")
            if action.verb == "create":
                self.api.create(ApiRequest(action.kind, namespace), action.obj)
            elif action.verb == "delete":
                self.api.delete(ApiRequest(action.kind, namespace, name))
            else:
                self.api.update(ApiRequest(action.kind, namespace, name, subresource=action.subresource), action.obj)

    def service(self, name: str, **spec: object) -> Json:
        """A new Service in `default`."""
        obj = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
        return self.api.create(ApiRequest(SERVICE, "default"), obj).copy()

    def names(self, kind: Kind) -> list[str]:
        """The names of all objects of a kind."""
        return [obj["metadata"]["name"] for obj in self.api.list(ApiRequest(kind)).items]

    def restarted(self, config: ClusterConfig | None = None) -> Stepper:
        """The same objects, learnt anew."""
        kinds = KINDS
        objects = tuple(version for kind in kinds for version in self.api.list(ApiRequest(kind)).stored)
        return Stepper(config or self.config, objects, self.api.store.revision, self.now_s)
