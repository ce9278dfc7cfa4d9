"""The EndpointSlices of a Service with a selector (k8s.io/endpointslice, reconciler.go)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kdns.controlplane.endpointpods import (
    HEADLESS,
    SERVICE_NAME,
    TRIGGER_TIME,
    addresses_in,
    families_of,
    has_endpoint,
    hostname_in,
    is_ready,
    is_terminating,
    publishes_not_ready,
    target_ports,
    target_ref,
    wants_headless_label,
)
from kdns.controlplane.kinds import Json
from kdns.controlplane.services import spec_of
from kdns.controlplane.slicepacking import pack

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
CONTROLLER = "endpointslice-controller.k8s.io"
ZONE = "topology.kubernetes.io/zone"
TOPOLOGY = ("service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode")
PER_SLICE = 100
PortKey: TypeAlias = tuple[tuple[str, str, int, str], ...]
_RESERVED = frozenset({SERVICE_NAME, MANAGED_BY, HEADLESS})


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """What to write: whole objects to create and update, existing ones to delete.

    `skipped` says which Pods were left out because their node is unknown: try again when nodes change.
    """

    create: list[Json] = field(default_factory=list)
    update: list[Json] = field(default_factory=list)
    delete: list[Json] = field(default_factory=list)
    skipped: tuple[str, ...] = ()


def plan_slices(
    service: Json,
    pods: Sequence[Json],
    nodes: Mapping[str, Json],
    existing: Sequence[Json],
    trigger: str,
    *,
    per_slice: int = PER_SLICE,
    same_node: bool = True,
) -> SlicePlan:
    """The writes that bring `existing`, the controller's slices of this Service, to what its Pods say.

    `trigger` is the time of the change that led here (RFC 3339). `same_node` is the gate PreferSameTrafficDistribution.
    """
    families = families_of(service)
    plan = SlicePlan(delete=[each for each in existing if each.get("addressType") not in families])
    skipped: dict[str, None] = {}
    for family in families:
        mine = [each for each in existing if each.get("addressType") == family]
        groups = _groups(service, pods, nodes, family, skipped, same_node=same_node)
        _plan_family(service, family, groups, mine, plan, per_slice)
    _reuse(service, plan)
    if service["metadata"].get("deletionTimestamp"):
        plan.create.clear()
    for each in (*plan.create, *plan.update):
        meta = each["metadata"]
        annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key != TRIGGER_TIME}
        meta["annotations"] = {**annotations, **({TRIGGER_TIME: trigger} if trigger else {})}
    return SlicePlan(plan.create, plan.update, plan.delete, tuple(skipped))


@dataclass(slots=True)
class _Group:
    """Endpoints that share one set of ports."""

    ports: list[Json]
    endpoints: list[Json] = field(default_factory=list)


def port_key(ports: Iterable[Json] | None) -> PortKey:
    """A value that is equal for equal sets of ports."""
    rows = (
        (port.get("name") or "", port.get("protocol") or "TCP", port.get("port") or 0, port.get("appProtocol") or "")
        for port in ports or []
    )
    return tuple(sorted(rows))


def _groups(
    service: Json,
    pods: Sequence[Json],
    nodes: Mapping[str, Json],
    family: str,
    skipped: dict[str, None],
    *,
    same_node: bool,
) -> dict[PortKey, _Group]:
    """Differs: a Pod on no node counts; without a simulation, whoever writes its status is the whole kubelet."""
    groups: dict[PortKey, _Group] = {}
    hints = _hint_fields(service, same_node=same_node)
    for pod in pods:
        if not has_endpoint(pod, terminating=True):
            continue
        ports = target_ports(pod, service)
        group = groups.setdefault(port_key(ports), _Group(ports))
        node_name = (pod.get("spec") or {}).get("nodeName") or ""
        if node_name and node_name not in nodes and not publishes_not_ready(service):
            where = f"{service['metadata'].get('namespace', '')}/{service['metadata']['name']}"
            skipped[f"skipping Pod {pod['metadata']['name']} for Service {where}: Node {node_name} Not Found"] = None
            continue
        endpoint = _endpoint(service, pod, nodes.get(node_name), family)
        if endpoint["addresses"]:
            group.endpoints.append(_hinted(endpoint, hints))
    return groups


def _endpoint(service: Json, pod: Json, node: Json | None, family: str) -> Json:
    serving, going = is_ready(pod), is_terminating(pod)
    ready = publishes_not_ready(service) or (serving and not going)
    endpoint: Json = {
        "addresses": addresses_in(pod, family),
        "conditions": {"ready": ready, "serving": serving, "terminating": going},
        "targetRef": target_ref(pod),
    }
    zone = ((node or {}).get("metadata") or {}).get("labels", {}).get(ZONE)
    rows = {"hostname": hostname_in(pod, service), "nodeName": (pod.get("spec") or {}).get("nodeName"), "zone": zone}
    return {**endpoint, **{key: value for key, value in rows.items() if value}}


def _hint_fields(service: Json, *, same_node: bool) -> tuple[str, ...]:
    """Which hints spec.trafficDistribution asks for; the older topology annotation overrides it."""
    annotations = service["metadata"].get("annotations") or {}
    if any((annotations.get(key) or "").lower() == "auto" for key in TOPOLOGY):
        return ()
    fields = {"PreferClose": ("zone",), "PreferSameZone": ("zone",), "PreferSameNode": ("zone", "nodeName")}
    wanted = spec_of(service).get("trafficDistribution") or ""
    return fields.get(wanted, ()) if same_node or wanted == "PreferClose" else ()


def _hinted(endpoint: Json, wanted: tuple[str, ...]) -> Json:
    if not endpoint["conditions"]["ready"] or not endpoint.get("zone"):
        wanted = tuple(name for name in wanted if name == "nodeName" and endpoint["conditions"]["ready"])
    spelled = {"zone": "forZones", "nodeName": "forNodes"}
    hints = {spelled[name]: [{"name": endpoint[name]}] for name in wanted if endpoint.get(name)}
    return {**endpoint, "hints": hints} if hints else endpoint


def _plan_family(
    service: Json, family: str, groups: dict[PortKey, _Group], existing: list[Json], plan: SlicePlan, per_slice: int
) -> None:
    by_ports: dict[PortKey, list[Json]] = {}
    delete, create = [], []
    for each in existing:
        if is_owned(each, service):
            by_ports.setdefault(port_key(each.get("ports")), []).append(each)
        else:
            delete.append(each)
    for key, group in groups.items():
        mine = by_ports.pop(key, [])
        labels = slice_labels(service)
        relabelled = {each["metadata"]["name"] for each in mine if _free_labels(each) != _free_labels(service)}
        packing = pack(mine, group.endpoints, relabelled, per_slice)
        for each in mine:
            name = each["metadata"]["name"]
            if name in packing.emptied or (not packing.kept[name] and not group.endpoints):
                delete.append(each)
            elif name in packing.changed:
                plan.update.append(_rewritten(each, labels, packing.kept[name]))
            elif name in packing.filled:
                plan.update.append({**each, "metadata": {**each["metadata"]}, "endpoints": packing.kept[name]})
        create += [new_slice(service, family, group.ports, endpoints) for endpoints in packing.fresh]
    delete += [each for mine in by_ports.values() for each in mine]
    if len(delete) == len(existing) and not create:
        placeholder = new_slice(service, family, [], [])
        if len(delete) == 1 and _says_the_same(delete[0], placeholder):
            delete.clear()
        else:
            create.append(placeholder)
    plan.create.extend(create)
    plan.delete.extend(delete)


def _says_the_same(old: Json, new: Json) -> bool:
    mine, other = old["metadata"], new["metadata"]
    same = all(mine.get(key) == other.get(key) for key in ("labels", "ownerReferences"))
    return same and not old.get("endpoints") and not old.get("ports")


def _reuse(service: Json, plan: SlicePlan) -> None:
    """A slice to delete and one to create of the same family become one update."""
    for old in [each for each in plan.delete if is_owned(each, service)]:
        new = next((each for each in reversed(plan.create) if each["addressType"] == old["addressType"]), None)
        if new is not None:
            plan.create.remove(new)
            plan.delete.remove(old)
            plan.update.append({**_rewritten(old, new["metadata"]["labels"], new["endpoints"]), "ports": new["ports"]})


def _rewritten(old: Json, labels: Json, endpoints: list[Json]) -> Json:
    return {**old, "metadata": {**old["metadata"], "labels": labels}, "endpoints": endpoints}


def is_owned(each: Json, owner: Json) -> bool:
    """Whether `owner`, this very object and no earlier one of its name, controls the slice."""
    references = each["metadata"].get("ownerReferences") or []
    uid = owner["metadata"].get("uid")
    return any(reference.get("controller") and reference.get("uid") == uid for reference in references)


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
