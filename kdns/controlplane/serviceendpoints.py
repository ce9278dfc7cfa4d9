"""The three controllers of a Service's endpoints: Endpoints, EndpointSlices, mirrors of hand-written Endpoints.

They share one index of objects. Each keeps what it makes of a Service's Pods, and works out again what changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kdns.cluster.objects import Key
from kdns.controlplane import mirroring, topology
from kdns.controlplane.controller import Action, Controller, Notice, Outcome, Subject
from kdns.controlplane.endpoints import MANAGED_BY, Addresses, follows_selector, wanted_endpoints
from kdns.controlplane.endpointslices import CONTROLLER, SlicePlan, plan_slices
from kdns.controlplane.endpointslices import MANAGED_BY as MANAGED_BY_LABEL
from kdns.controlplane.kinds import ENDPOINT_SLICE, ENDPOINTS, NODE, POD, SERVICE, Json, Kind
from kdns.controlplane.rosters import Rosters
from kdns.controlplane.services import spec_of
from kdns.controlplane.sliceendpoints import Rules, SliceEndpoints
from kdns.controlplane.status import StatusError
from kdns.controlplane.tracking import Tracked


def endpoint_controllers() -> tuple[Controller, ...]:
    """The three, on one index. Their subjects are Services by namespace and name, also such as do not exist."""
    tracked = Tracked()
    return EndpointController(tracked), EndpointSliceController(tracked), MirroringController(tracked)


LARGE = 100
PAUSE_S = 0.1


class EndpointController:
    """Endpoints of Services with a selector; they go with the Service, whoever wrote them.

    Endpoints say everything in one object, so each of a thousand Pods would cost a write of a thousand addresses:
    more than `LARGE` addresses are written at most every `PAUSE_S`, the first change at once.
    Differs: kube-controller-manager has --endpoint-updates-batch-period for that, which is 0 unless set.
    """

    name = "endpoint-controller"
    follows = (SERVICE, ENDPOINTS, POD)
    settled = frozenset({ENDPOINTS})

    def __init__(self, tracked: Tracked) -> None:
        self._tracked = tracked
        self._rosters = Rosters(tracked, spec_of, Addresses)
        self._gone: dict[Key, int] = {}
        self._next_s: dict[Key, float] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Note the object; the Services that it concerns."""
        if kind == SERVICE:
            self._gone.pop(key, None)
            if obj is None:
                self._gone[key] = revision
        return self._rosters.touch(self._tracked.learn(kind, key, obj, revision))

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """The Endpoints that the Service lacks, or that outlived it: those written after it was deleted stay.

        Differs: at its start, kube-controller-manager deletes all Endpoints without a Service; here only its own.
        """
        _ = since_s
        key = _key(subject)
        gone = self._gone.pop(key, 0)
        existing, service = self._tracked.endpoints.get(key), self._tracked.services.get(key)
        if service is None:
            self._next_s.pop(key, None)
            self._rosters.drop(key)
            late = existing and (int(existing["metadata"]["resourceVersion"]) < gone or _is_managed(existing))
            return Outcome((Action("delete", ENDPOINTS, existing),)) if existing and late else Outcome()
        if not follows_selector(service):
            self._rosters.drop(key)
            return Outcome()
        if 0 < (wait_s := self._next_s.get(key, 0) - now_s) <= PAUSE_S:
            return Outcome(again_s=wait_s)
        addresses, trigger = self._rosters.look(key, service)
        wanted = wanted_endpoints(service, addresses, existing, trigger)
        self._next_s.pop(key, None)
        if wanted and len(addresses) > LARGE:
            self._next_s[key] = now_s + PAUSE_S
        return Outcome((Action("update" if existing else "create", ENDPOINTS, wanted),)) if wanted else Outcome()

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """A Warning about the Endpoints."""
        key = _key(subject)
        existing, where = self._tracked.endpoints.get(key), "/".join(subject)
        about = existing or {"metadata": {"name": key[1], "namespace": key[0]}}
        reason, said = "FailedToCreateEndpoint", f"Failed to create endpoint for service {where}: {error}"
        if existing:
            reason, said = "FailedToUpdateEndpoint", f"Failed to update endpoint {where}: {error}"
        return Notice(ENDPOINTS, about, "Warning", reason, said)


class EndpointSliceController:
    """EndpointSlices of Services with a selector.

    Differs: when a Service loses its selector or becomes an ExternalName, kube-controller-manager leaves its slices
    where they are, and they grow stale beside the mirrored ones; here they are deleted.
    """

    name = "endpointslice-controller"
    follows = (NODE, SERVICE, ENDPOINT_SLICE, POD)
    settled = frozenset({ENDPOINT_SLICE})

    def __init__(self, tracked: Tracked, rules: Rules | None = None) -> None:
        self._tracked, self._rules = tracked, rules or Rules()
        self._rosters = Rosters(
            tracked,
            lambda service: (spec_of(service), topology.is_auto(service)),
            lambda service: SliceEndpoints(service, tracked.nodes, self._rules),
        )
        self._shares: topology.Shares | None = None
        self._allocated: dict[Key, dict[str, Mapping[str, int]]] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Note the object; the Services that it concerns."""
        found = self._rosters.touch(self._tracked.learn(kind, key, obj, revision))
        if kind == NODE:
            self._shares = None
            if self._allocated:
                found |= self._overloaded()
        return found

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """The slices that the Service lacks; Events say which Pods are left out, and how topology hints fare."""
        _ = since_s, now_s
        key = _key(subject)
        service = self._tracked.services.get(key)
        mine = [each for each in self._tracked.slices_of(key) if _manager(each) == CONTROLLER]
        if service is None or not follows_selector(service):
            self._rosters.drop(key)
            self._allocated.pop(key, None)
            return Outcome([Action("delete", ENDPOINT_SLICE, each) for each in mine])
        endpoints, trigger = self._rosters.look(key, service)
        mine = [each for each in mine if not each["metadata"].get("deletionTimestamp")]
        plan = plan_slices(service, endpoints, mine, trigger, rules=self._rules, shares=self._zone_shares(endpoints))
        notices = list(self._hints_told(key, service, endpoints.families, plan))
        if skipped := list(endpoints.skipped.values()):
            notices.append(_failed_slices(service, f"[{', '.join(skipped)}]" if len(skipped) > 1 else skipped[0]))
        return Outcome(_slice_actions(plan), notices)

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """A Warning about the Service."""
        key = _key(subject)
        service = self._tracked.services.get(key)
        if service is None:
            return None
        name = (error.details or {}).get("name", "") if isinstance(error, StatusError) else ""
        stored = (key[0], name) in self._tracked.slices
        what = f"update {name} EndpointSlice" if stored else "create EndpointSlice"
        return _failed_slices(service, f"failed to {what} for Service {'/'.join(subject)}: {error}")

    def _zone_shares(self, endpoints: SliceEndpoints) -> topology.Shares:
        if not endpoints.auto:
            return {}
        if self._shares is None:
            self._shares = topology.zone_shares(self._tracked.nodes.values())
        return self._shares

    def _overloaded(self) -> set[Key]:
        """Services whose hints no longer fit the nodes."""
        self._shares = shares = topology.zone_shares(self._tracked.nodes.values())
        rows = self._allocated.items()
        return {key for key, by in rows if any(topology.is_overloaded(each, shares) for each in by.values())}

    def _hints_told(self, key: Key, service: Json, families: Iterable[str], plan: SlicePlan) -> Iterable[Notice]:
        """Events on topology hints, as k8s.io/endpointslice tells them; remembers who has hints."""
        for family in families:
            had = key in self._allocated
            if plan.allocated.get(family):
                self._allocated.setdefault(key, {})[family] = plan.allocated[family]
                if not had:
                    said = f"Topology Aware Hints has been enabled, addressType: {family}"
                    yield Notice(SERVICE, service, "Normal", "TopologyAwareHintsEnabled", said)
                continue
            why = plan.problems.get(family) or ("Topology Aware Hints has been disabled" if had else "")
            self._allocated.pop(key, None)
            if why:
                said = f"{why}, addressType: {family}"
                yield Notice(SERVICE, service, "Warning", "TopologyAwareHintsDisabled", said)


class MirroringController:
    """EndpointSlices that say what hand-written Endpoints say."""

    name = "endpointslicemirroring-controller"
    follows = (SERVICE, ENDPOINTS, ENDPOINT_SLICE)
    settled = frozenset({ENDPOINT_SLICE})

    def __init__(self, tracked: Tracked) -> None:
        self._tracked = tracked

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Note the object; the Endpoints that it concerns."""
        return {service for service, _ in self._tracked.learn(kind, key, obj, revision)}

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """The slices that the Endpoints lack; Events say which addresses are left out."""
        _ = since_s, now_s
        key = _key(subject)
        mine = [each for each in self._tracked.slices_of(key) if _manager(each) == mirroring.CONTROLLER]
        endpoints = self._tracked.endpoints.get(key)
        if endpoints is None or not mirroring.is_mirrored(endpoints, self._tracked.services.get(key)):
            return Outcome([Action("delete", ENDPOINT_SLICE, each) for each in mine])
        copied = mirroring.copied_endpoints(endpoints)
        notices = [Notice(ENDPOINTS, endpoints, "Warning", *said) for said in mirroring.left_out(copied)]
        return Outcome(_slice_actions(mirroring.plan_mirror(endpoints, copied, mine)), notices)

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """Nobody is told: the log is."""
        _ = subject, error
        return None


def _key(subject: Subject) -> Key:
    namespace, name = subject
    return namespace, name


def _manager(each: Json) -> str | None:
    manager: str | None = (each["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL)
    return manager


def _is_managed(existing: Json) -> bool:
    labels = existing["metadata"].get("labels") or {}
    return bool(MANAGED_BY.items() <= labels.items())


def _slice_actions(plan: SlicePlan) -> list[Action]:
    """Creations first, so that no endpoint is missing between two writes."""
    return [
        *(Action("create", ENDPOINT_SLICE, each) for each in plan.create),
        *(Action("update", ENDPOINT_SLICE, each) for each in plan.update),
        *(Action("delete", ENDPOINT_SLICE, each) for each in plan.delete),
    ]


def _failed_slices(service: Json, why: str) -> Notice:
    where = f"{service['metadata'].get('namespace', '')}/{service['metadata']['name']}"
    said = f"Error updating Endpoint Slices for Service {where}: {why}"
    return Notice(SERVICE, service, "Warning", "FailedToUpdateEndpointSlices", said)
