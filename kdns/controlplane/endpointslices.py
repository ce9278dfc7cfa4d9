"""The EndpointSlices of a Service with a selector (k8s.io/endpointslice, reconciler.go)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kdns.controlplane.endpointpods import HEADLESS, SERVICE_NAME, TRIGGER_TIME, wants_headless_label
from kdns.controlplane.kinds import Json
from kdns.controlplane.sliceendpoints import PortKey, Rules, SliceEndpoints
from kdns.controlplane.slicepacking import Laid, pack
from kdns.controlplane.topology import Shares, with_hints

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
CONTROLLER = "endpointslice-controller.k8s.io"
RULES = Rules()
_RESERVED = frozenset({SERVICE_NAME, MANAGED_BY, HEADLESS})


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """What to write: whole objects to create and update, existing ones to delete.

    `allocated` counts, by family, the endpoints that topology hints give to each zone; `problems` say, by family, why
    there are none although they are asked for.
    """

    create: list[Json] = field(default_factory=list)
    update: list[Json] = field(default_factory=list)
    delete: list[Json] = field(default_factory=list)
    allocated: dict[str, Mapping[str, int]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def plan_slices(
    service: Json,
    endpoints: SliceEndpoints,
    existing: Sequence[Json],
    trigger: str,
    *,
    rules: Rules = RULES,
    shares: Shares | None = None,
) -> SlicePlan:
    """The writes that bring `existing`, the controller's slices of this Service, to what its Pods say.

    `trigger` is the time of the change that led here (RFC 3339); "" leaves no annotation. `shares` are the zones'.
    """
    plan = SlicePlan()
    endpoints.forget_slices(each["metadata"]["name"] for each in existing)
    for family in endpoints.families:
        mine = [each for each in existing if each.get("addressType") == family]
        _plan_family(service, family, endpoints, mine, plan, rules, shares or {})
    plan.delete.extend(each for each in existing if each.get("addressType") not in endpoints.families)
    if service["metadata"].get("deletionTimestamp"):
        plan.create.clear()
    for each in (*plan.create, *plan.update):
        meta = each["metadata"]
        annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key != TRIGGER_TIME}
        meta["annotations"] = {**annotations, **({TRIGGER_TIME: trigger} if trigger else {})}
    return plan


def _plan_family(
    service: Json,
    family: str,
    endpoints: SliceEndpoints,
    existing: list[Json],
    plan: SlicePlan,
    rules: Rules,
    shares: Shares,
) -> None:
    create, update, delete = _packed(service, family, endpoints, existing, rules)
    if len(delete) == len(existing) and not create:
        placeholder = new_slice(service, family, [], [])
        if len(delete) == 1 and _says_the_same(delete[0], placeholder):
            delete.clear()
        else:
            create.append(placeholder)
    if endpoints.auto:
        written = {each["metadata"]["name"] for each in (*delete, *update)}
        unchanged = [each for each in existing if each["metadata"]["name"] not in written]
        hints = with_hints(create, update, unchanged, shares)
        create, update = hints.create, hints.update
        plan.allocated[family] = hints.allocated
        if hints.problem:
            plan.problems[family] = hints.problem
    reused = reuse(create, [each for each in delete if is_owned(each, "Service", service)])
    plan.create.extend(create)
    plan.update.extend((*update, *reused.values()))
    plan.delete.extend(each for each in delete if each["metadata"]["name"] not in reused)


def _packed(
    service: Json, family: str, endpoints: SliceEndpoints, existing: list[Json], rules: Rules
) -> tuple[list[Json], list[Json], list[Json]]:
    """Slices to create, to update and to delete."""
    by_ports: dict[PortKey, list[tuple[Json, Laid]]] = {}
    for each in existing:
        if is_owned(each, "Service", service):
            ports, laid = endpoints.laid(each)
            by_ports.setdefault(ports, []).append((each, laid))
    create: list[Json] = []
    update: list[Json] = []
    delete = [each for each in existing if not is_owned(each, "Service", service)]
    labels = slice_labels(service)
    for key, group in endpoints.groups.items():
        mine = by_ports.pop(key, [])
        relabelled = {laid.name for each, laid in mine if _free_labels(each) != _free_labels(service)}
        packing = pack([laid for _, laid in mine], group.endpoints.get(family, {}), relabelled, rules.per_slice)
        for each, laid in mine:
            if laid.name in packing.emptied:
                delete.append(each)
            elif laid.name in packing.changed:
                update.append(_rewritten(each, labels, packing.kept[laid.name]))
            elif laid.name in packing.filled:
                update.append(_rewritten(each, each["metadata"].get("labels") or {}, packing.kept[laid.name]))
        create += [new_slice(service, family, group.ports, packed) for packed in packing.fresh]
    delete += [each for mine in by_ports.values() for each, _ in mine]
    return create, update, delete


def reuse(create: list[Json], delete: Iterable[Json]) -> dict[str, Json]:
    """Slices to delete and to create become updates, by name; what is used up is taken out of `create`."""
    updates = {}
    for old in delete:
        new = next((each for each in reversed(create) if each["addressType"] == old["addressType"]), None)
        if new is not None:
            create.remove(new)
            meta = {**old["metadata"], "labels": new["metadata"]["labels"]}
            updates[meta["name"]] = {**old, **new, "metadata": meta}
    return updates


def _says_the_same(old: Json, new: Json) -> bool:
    mine, other = old["metadata"], new["metadata"]
    same = all(mine.get(key) == other.get(key) for key in ("labels", "ownerReferences"))
    return same and not old.get("endpoints") and not old.get("ports")


def _rewritten(old: Json, labels: Json, endpoints: list[Json]) -> Json:
    return {**old, "metadata": {**old["metadata"], "labels": labels}, "endpoints": endpoints}


def is_owned(each: Json, kind: str, owner: Json) -> bool:
    """Whether `owner`, this very object and no earlier one of its name, is an owner of the slice."""
    wanted = ("v1", kind, owner["metadata"].get("uid"))
    references = each["metadata"].get("ownerReferences") or []
    return any((one.get("apiVersion"), one.get("kind"), one.get("uid")) == wanted for one in references)


def _free_labels(obj: Json) -> dict[str, str]:
    """Labels that are not the controller's own."""
    return {key: value for key, value in (obj["metadata"].get("labels") or {}).items() if key not in _RESERVED}


def slice_labels(service: Json) -> dict[str, str]:
    """The labels of the Service, and those by which its slices are found."""
    labels = _free_labels(service) | {SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: CONTROLLER}
    return {**labels, HEADLESS: ""} if wants_headless_label(service) else labels


def owner_reference(kind: str, owner: Json) -> Json:
    """The reference that makes `owner` the controller of an object and takes the object along when it goes."""
    meta = owner["metadata"]
    row = {"apiVersion": "v1", "kind": kind, "name": meta["name"], "uid": meta.get("uid", "")}
    return {**row, "controller": True, "blockOwnerDeletion": True}


def new_slice(service: Json, family: str, ports: list[Json], endpoints: list[Json]) -> Json:
    """A slice of the Service; its name comes from the API."""
    meta = service["metadata"]
    metadata: Json = {
        "generateName": f"{meta['name']}-",
        "namespace": meta.get("namespace", ""),
        "labels": slice_labels(service),
        "ownerReferences": [owner_reference("Service", service)],
    }
    kind = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice"}
    return {**kind, "metadata": metadata, "addressType": family, "endpoints": endpoints, "ports": ports}
