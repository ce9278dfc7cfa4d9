"""The EndpointSlice controller: EndpointSlices of Services with a selector (pkg/controller/endpointslice).

Packing, as in k8s.io/endpointslice (reconciler.go), keeps the number of writes low. An endpoint stays in its slice. New
endpoints first fill slices that change anyway, the fullest first; then one unchanged slice that has room for all
remaining endpoints; then new slices. Endpoints are never rebalanced between slices.

A slice without changes costs a few microseconds. Its endpoints are looked up by identity; once equal, they are replaced
by the desired objects themselves, so the next comparison is by identity of objects.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, NODE, POD, SERVICE, Json, Kind
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request, Result
from kdns.controlplane.endpoints.desired_endpoints import (
    DesiredEndpoints,
    PortKey,
    StoredEndpoints,
)
from kdns.controlplane.endpoints.pod_endpoints import (
    HEADLESS,
    MANAGED_BY,
    SERVICE_NAME,
    TRIGGER_TIME,
    has_selector,
    wants_headless_label,
)
from kdns.controlplane.endpoints.service_index import PodViews, ServiceIndex
from kdns.controlplane.gc.owners import is_owned, owner_reference
from kdns.controlplane.kinds.service.spec import spec_of
from kdns.controlplane.storage.object_meta import is_terminating

CONTROLLER = "endpointslice-controller.k8s.io"
MAX_ENDPOINTS = 100
"""Endpoints of one slice (kube-controller-manager: --max-endpoints-per-slice)."""

_RESERVED = frozenset({SERVICE_NAME, MANAGED_BY, HEADLESS})


class EndpointSliceController(Reconciler):
    """EndpointSlices of Services with a selector. Requests are Services by namespace and name, existing or not.

    Differs: when a Service loses its selector or becomes an ExternalName, its slices are deleted.
    kube-controller-manager keeps them, stale beside the mirrored ones.
    """

    name = "endpointslice-controller"
    watches = (NODE, SERVICE, ENDPOINT_SLICE, POD)
    has_low_priority = True
    ignores_own_writes_of = frozenset({ENDPOINT_SLICE})

    def __init__(self, index: ServiceIndex, max_endpoints: int = MAX_ENDPOINTS) -> None:
        self._index, self._max_endpoints = index, max_endpoints
        self._endpoints = PodViews(index, spec_of, lambda service: DesiredEndpoints(service, index.nodes))

    def observe(self, change: Change) -> Iterable[Name]:
        return self._endpoints.touch(self._index.observe(change))

    def reconcile(self, request: Request) -> Result:
        key = request.key
        service = self._index.services.get(key)
        mine = self._index.slices_of(key, CONTROLLER)
        if service is None or not has_selector(service):
            self._endpoints.drop(key)
            return Result([Action("delete", ENDPOINT_SLICE, stale) for stale in mine])
        endpoints, trigger = self._endpoints.view(key, service)
        mine = [endpoint_slice for endpoint_slice in mine if not is_terminating(endpoint_slice)]
        plan = plan_slices(service, endpoints, mine, trigger, self._max_endpoints)
        events = []
        if skipped := list(endpoints.skipped.values()):
            events.append(_failed_slices(service, f"[{', '.join(skipped)}]" if len(skipped) > 1 else skipped[0]))
        return Result(plan.actions, events)

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        service = self._index.services.get(request.key)
        if service is None:
            return None
        name = "" if action.verb == "create" else f" {action.obj['metadata']['name']}"
        what = f"{action.verb}{name} EndpointSlice"
        return _failed_slices(service, f"failed to {what} for Service {'/'.join(request.name)}: {error}")


def _failed_slices(service: Json, why: str) -> Event:
    where = f"{service['metadata'].get('namespace', '')}/{service['metadata']['name']}"
    message = f"Error updating Endpoint Slices for Service {where}: {why}"
    return Event(SERVICE, service, "Warning", "FailedToUpdateEndpointSlices", message)


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """The writes of one reconcile."""

    create: list[Json] = field(default_factory=list)
    update: list[Json] = field(default_factory=list)
    delete: list[Json] = field(default_factory=list)

    @property
    def actions(self) -> list[Action]:
        """Creations first, so that no endpoint is missing between two writes."""
        return [
            *(Action("create", ENDPOINT_SLICE, _as_stored(new)) for new in self.create),
            *(Action("update", ENDPOINT_SLICE, _as_stored(changed)) for changed in self.update),
            *(Action("delete", ENDPOINT_SLICE, stale) for stale in self.delete),
        ]


def _as_stored(endpoint_slice: Json) -> Json:
    """null for empty lists, as the API stores them; otherwise it would compare the lists field by field."""
    return {**endpoint_slice, **{name: endpoint_slice.get(name) or None for name in ("endpoints", "ports")}}


def plan_slices(
    service: Json,
    endpoints: DesiredEndpoints,
    existing: Sequence[Json],
    trigger: str,
    most: int = MAX_ENDPOINTS,
) -> SlicePlan:
    """The writes after which `existing`, the slices that the controller manages for this Service, hold `endpoints`.

    `trigger` is the trigger time (RFC 3339), "" for no annotation.
    """
    plan = SlicePlan()
    endpoints.forget_slices(stored["metadata"]["name"] for stored in existing)
    for family in endpoints.families:
        mine = [stored for stored in existing if stored.get("addressType") == family]
        _plan_family(service, family, endpoints, mine, plan, most)
    plan.delete.extend(stored for stored in existing if stored.get("addressType") not in endpoints.families)
    if is_terminating(service):
        plan.create.clear()
    for written in (*plan.create, *plan.update):
        meta = written["metadata"]
        annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key != TRIGGER_TIME}
        meta["annotations"] = {**annotations, **({TRIGGER_TIME: trigger} if trigger else {})}
    return plan


def _plan_family(
    service: Json,
    family: str,
    endpoints: DesiredEndpoints,
    existing: list[Json],
    plan: SlicePlan,
    most: int,
) -> None:
    create, update, delete = _packed(service, family, endpoints, existing, most)
    if len(delete) == len(existing) and not create:
        placeholder = new_slice(SERVICE, service, slice_labels(service), family, [], [])
        if len(delete) == 1 and _is_placeholder(delete[0], placeholder):
            delete.clear()
        else:
            create.append(placeholder)
    reused = reuse(create, [stale for stale in delete if is_owned(stale, SERVICE, service)])
    plan.create.extend(create)
    plan.update.extend((*update, *reused.values()))
    plan.delete.extend(stale for stale in delete if stale["metadata"]["name"] not in reused)


def _packed(
    service: Json, family: str, endpoints: DesiredEndpoints, existing: list[Json], most: int
) -> tuple[list[Json], list[Json], list[Json]]:
    """The slices to create, to update and to delete."""
    by_ports: dict[PortKey, list[tuple[Json, StoredEndpoints]]] = {}
    for endpoint_slice in existing:
        if is_owned(endpoint_slice, SERVICE, service):
            ports, stored = endpoints.stored(endpoint_slice)
            by_ports.setdefault(ports, []).append((endpoint_slice, stored))
    create: list[Json] = []
    update: list[Json] = []
    delete = [endpoint_slice for endpoint_slice in existing if not is_owned(endpoint_slice, SERVICE, service)]
    labels = slice_labels(service)
    for key, group in endpoints.groups.items():
        mine = by_ports.pop(key, [])
        relabelled = {
            stored.name for endpoint_slice, stored in mine if _copied_labels(endpoint_slice) != _copied_labels(service)
        }
        packing = pack([stored for _, stored in mine], group.endpoints.get(family, {}), relabelled, most)
        for endpoint_slice, stored in mine:
            if stored.name in packing.emptied:
                delete.append(endpoint_slice)
            elif stored.name in packing.changed:
                update.append(_rewritten(endpoint_slice, labels, packing.endpoints[stored.name]))
            elif stored.name in packing.filled:
                update.append(
                    _rewritten(
                        endpoint_slice, endpoint_slice["metadata"].get("labels") or {}, packing.endpoints[stored.name]
                    )
                )
        create += [new_slice(SERVICE, service, labels, family, group.ports, packed) for packed in packing.created]
    delete += [endpoint_slice for mine in by_ports.values() for endpoint_slice, _ in mine]
    return create, update, delete


def reuse(create: list[Json], delete: Iterable[Json]) -> dict[str, Json]:
    """Pairs slices to delete with slices to create: such updates, by name, save a write each. Removes them from
    `create`.
    """
    updates = {}
    for old in delete:
        new = next((created for created in reversed(create) if created["addressType"] == old["addressType"]), None)
        if new is not None:
            create.remove(new)
            meta = {**old["metadata"], "labels": new["metadata"]["labels"]}
            updates[meta["name"]] = {**old, **new, "metadata": meta}
    return updates


def _is_placeholder(old: Json, new: Json) -> bool:
    mine, other = old["metadata"], new["metadata"]
    same = all(mine.get(key) == other.get(key) for key in ("labels", "ownerReferences"))
    return same and not old.get("endpoints") and not old.get("ports")


def _rewritten(old: Json, labels: Json, endpoints: list[Json]) -> Json:
    return {**old, "metadata": {**old["metadata"], "labels": labels}, "endpoints": endpoints}


def _copied_labels(obj: Json) -> dict[str, str]:
    return {key: value for key, value in (obj["metadata"].get("labels") or {}).items() if key not in _RESERVED}


def slice_labels(service: Json) -> dict[str, str]:
    labels = _copied_labels(service) | {SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: CONTROLLER}
    return {**labels, HEADLESS: ""} if wants_headless_label(service) else labels


def new_slice(kind: Kind, owner: Json, labels: Json, family: str, ports: list[Json], endpoints: list[Json]) -> Json:
    """A slice of a Service or Endpoints, which the API names (generateName)."""
    meta = owner["metadata"]
    metadata: Json = {
        "generateName": f"{meta['name']}-",
        "namespace": meta.get("namespace", ""),
        "labels": labels,
        "ownerReferences": [owner_reference(kind, owner)],
    }
    typed = {"apiVersion": ENDPOINT_SLICE.api_version, "kind": ENDPOINT_SLICE.kind}
    return {**typed, "metadata": metadata, "addressType": family, "endpoints": endpoints, "ports": ports}


@dataclass(frozen=True, slots=True)
class Packing:
    """The new contents of the existing slices by name, and of slices to create; the sets hold names.

    A `filled` slice only got more endpoints. A `changed` one lost some or has new labels. An `emptied` one is empty.
    """

    endpoints: dict[str, list[Json]] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    filled: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)
    created: list[list[Json]] = field(default_factory=list)


def pack(
    existing: Sequence[StoredEndpoints], desired: Mapping[str, Json], relabelled: Container[str], most: int
) -> Packing:
    """Packs `desired`, endpoints by identity, into `existing` slices and new ones of at most `most` endpoints.

    Slices whose names are in `relabelled` are written anyway, since their labels change.
    """
    unplaced = dict(desired)
    packing = Packing()
    for stored in existing:
        now = [endpoint for mine in stored.identities if (endpoint := unplaced.pop(mine, None)) is not None]
        packing.endpoints[stored.name] = now
        if stored.endpoints and not now:
            packing.emptied.add(stored.name)
        elif now != stored.endpoints or stored.name in relabelled:
            packing.changed.add(stored.name)
        else:
            stored.endpoints = list(now)
    _pack_new(list(unplaced.values()), packing, most)
    return packing


def _pack_new(endpoints: list[Json], packing: Packing, most: int) -> None:
    for name in sorted(packing.changed, key=lambda name: (-len(packing.endpoints[name]), name)):
        room = max(most - len(packing.endpoints[name]), 0)
        packing.endpoints[name] += endpoints[:room]
        endpoints = endpoints[room:]
    while endpoints:
        best = _best_fit(packing, len(endpoints), most)
        if best is None:
            packing.created.append(endpoints[:most])
            endpoints = endpoints[most:]
        else:
            packing.endpoints[best] += endpoints
            packing.filled.add(best)
            endpoints = []


def _best_fit(packing: Packing, count: int, most: int) -> str | None:
    """The fullest unchanged slice with room for all `count` endpoints."""
    if count >= most:
        return None
    written = packing.changed | packing.emptied
    fits = [
        (most - count - len(endpoints), name)
        for name, endpoints in packing.endpoints.items()
        if name not in written and len(endpoints) + count <= most
    ]
    return min(fits)[1] if fits else None
