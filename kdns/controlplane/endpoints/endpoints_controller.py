"""The Endpoints controller: Endpoints of Services with a selector (pkg/controller/endpoint)."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.conditions import is_ready
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import ENDPOINTS, POD, SERVICE, Json
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request, Result
from kdns.controlplane.endpoints.pod_endpoints import (
    HEADLESS,
    TRIGGER_TIME,
    addresses_in,
    families_of,
    has_endpoint,
    has_selector,
    hostname_in,
    is_portless,
    publishes_not_ready,
    target_ports,
    target_ref,
    wants_headless_label,
)
from kdns.controlplane.endpoints.service_index import PodViews, ServiceIndex
from kdns.controlplane.kinds.pod.pod import pod_ips
from kdns.controlplane.kinds.service.spec import spec_of

CAPACITY: Final = 1000
"""Addresses in one Endpoints object."""

LARGE: Final = 100
PAUSE_S: Final = 0.1
OVER_CAPACITY: Final = "endpoints.kubernetes.io/over-capacity"
MANAGED_BY: Final = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}


class EndpointsController(Reconciler):
    """Endpoints of Services with a selector. Requests are Services by namespace and name, existing or not.

    Endpoints hold all addresses in one object, so a rollout of a thousand Pods would write a thousand addresses a
    thousand times. Endpoints of more than `LARGE` addresses are therefore written at most every `PAUSE_S`, the first
    change at once.

    Differs: kube-controller-manager has --endpoint-updates-batch-period for this, by default 0.
    """

    name = "endpoint-controller"
    watches = (SERVICE, ENDPOINTS, POD)
    has_low_priority = True
    ignores_own_writes_of = frozenset({ENDPOINTS})

    def __init__(self, index: ServiceIndex) -> None:
        self._index = index
        self._addresses = PodViews(index, spec_of, Addresses)
        self._deleted_at: dict[Key, int] = {}
        self._next_s: dict[Key, float] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        kind, key, obj, revision = change
        if kind == SERVICE:
            self._deleted_at.pop(key, None)
            if obj is None:
                self._deleted_at[key] = revision
        return self._addresses.touch(self._index.observe(change))

    def reconcile(self, request: Request) -> Result:
        """Writes the Endpoints, or deletes those of a deleted Service; Endpoints written after its deletion are kept.

        Differs: at its start, kube-controller-manager deletes all Endpoints without a Service; here only managed ones.
        """
        key = request.key
        deleted_at = self._deleted_at.pop(key, 0)
        existing, service = self._index.endpoints.get(key), self._index.services.get(key)
        if service is None:
            self._next_s.pop(key, None)
            self._addresses.drop(key)
            stale = existing and (int(existing["metadata"]["resourceVersion"]) < deleted_at or _is_managed(existing))
            return Result((Action("delete", ENDPOINTS, existing),)) if existing and stale else Result()
        if not has_selector(service):
            self._addresses.drop(key)
            return Result()
        if 0 < (wait_s := self._next_s.get(key, 0) - request.now_s) <= PAUSE_S:
            return Result(requeue_after_s=wait_s)
        addresses, trigger = self._addresses.view(key, service)
        desired = endpoints_to_write(service, addresses, existing, trigger)
        self._next_s.pop(key, None)
        if desired and len(addresses) > LARGE:
            self._next_s[key] = request.now_s + PAUSE_S
        return Result((Action("update" if existing else "create", ENDPOINTS, desired),)) if desired else Result()

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        where = "/".join(request.name)
        reason, message = "FailedToUpdateEndpoint", f"Failed to update endpoint {where}: {error}"
        if action.verb == "create":
            reason, message = "FailedToCreateEndpoint", f"Failed to create endpoint for service {where}: {error}"
        return Event(ENDPOINTS, action.obj, "Warning", reason, message)


def _is_managed(existing: Json) -> bool:
    labels = existing["metadata"].get("labels") or {}
    return bool(MANAGED_BY.items() <= labels.items())


def endpoints_to_write(service: Json, addresses: Addresses, existing: Json | None, trigger: str) -> Json | None:
    """None if `existing` is up to date.

    `trigger` is the time of the causing change (RFC 3339); "" for no annotation.
    """
    subsets, truncated = _truncated(addresses.subsets())
    meta = (existing or {}).get("metadata") or {}
    annotations = {
        key: value for key, value in (meta.get("annotations") or {}).items() if key not in {TRIGGER_TIME, OVER_CAPACITY}
    }
    if truncated:
        annotations[OVER_CAPACITY] = "truncated"
    labels = {**_without_headless(service["metadata"].get("labels") or {}), **MANAGED_BY}
    if existing and meta.get("resourceVersion"):
        same = (meta.get("annotations") or {}).get(OVER_CAPACITY) == annotations.get(OVER_CAPACITY)
        same = same and _without_headless(meta.get("labels") or {}) == labels
        if same and _is_equal(existing.get("subsets") or [], subsets):
            return None
    if wants_headless_label(service):
        labels[HEADLESS] = ""
    if trigger:
        annotations[TRIGGER_TIME] = trigger
    name = {"name": service["metadata"]["name"], "namespace": service["metadata"].get("namespace", "")}
    other = {key: value for key, value in meta.items() if key not in {"labels", "annotations"}}
    metadata = {**name, **other, "labels": labels, **({"annotations": annotations} if annotations else {})}
    endpoints: Json = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata}
    return {**endpoints, "subsets": subsets} if subsets else endpoints


_Row: TypeAlias = tuple[str, Key, Json]
"""IP address, key of the Pod, and EndpointAddress; rows are sorted by the first two."""


@dataclass(slots=True)
class _Group:
    """The addresses with one set of ports, sorted."""

    ports: list[Json]
    ready: list[_Row] = field(default_factory=list)
    not_ready: list[_Row] = field(default_factory=list)


class Addresses:
    """The addresses of one Service's Pods by set of ports: a `PodView`."""

    def __init__(self, service: Json) -> None:
        self._service = service
        self._groups: dict[bytes, _Group] = {}
        self._row_of: dict[Key, tuple[bytes, bool, _Row]] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def put(self, key: Key, pod: Json | None) -> None:
        new = self._row(key, pod) if pod else None
        old = self._row_of.pop(key, None)
        if old:
            self._remove(*old)
        if new:
            ports, is_up, row = new
            text = _text(ports)
            group = self._groups.setdefault(text, _Group(ports))
            insort(group.ready if is_up else group.not_ready, row, key=_order)
            self._row_of[key] = text, is_up, row

    def subsets(self) -> list[Json]:
        subsets = []
        for _, group in sorted(self._groups.items()):
            fields = {
                "addresses": [row[2] for row in group.ready],
                "notReadyAddresses": [row[2] for row in group.not_ready],
                "ports": group.ports,
            }
            subsets.append({key: value for key, value in fields.items() if value})
        return subsets

    def _remove(self, text: bytes, is_up: bool, row: _Row) -> None:
        group = self._groups[text]
        rows = group.ready if is_up else group.not_ready
        del rows[bisect_left(rows, _order(row), key=_order)]
        if not group.ready and not group.not_ready:
            del self._groups[text]

    def _row(self, key: Key, pod: Json) -> tuple[list[Json], bool, _Row] | None:
        service = self._service
        address = _address(service, pod)
        if address is None:
            return None
        ports = target_ports(pod, service)
        if not ports and not is_portless(service):
            return None
        rows = [{key: value for key, value in port.items() if value != ""} for port in ports]
        return sorted(rows, key=_text), is_ready(pod) or publishes_not_ready(service), (address["ip"], key, address)


def _order(row: _Row) -> tuple[str, Key]:
    return row[:2]


def _address(service: Json, pod: Json) -> Json | None:
    """The EndpointAddress of a Pod; None if it is no endpoint, or has no address of the Service's first family."""
    if not has_endpoint(pod, terminating=publishes_not_ready(service)):
        return None
    family = families_of(service)[0]
    addresses = addresses_in(pod, family)
    if not addresses and not spec_of(service).get("ipFamilies"):
        addresses = pod_ips(pod)
    if not addresses:
        return None
    address: Json = {"ip": addresses[0]}
    if hostname := hostname_in(pod, service):
        address["hostname"] = hostname
    if node := (pod.get("spec") or {}).get("nodeName"):
        address["nodeName"] = node
    return {**address, "targetRef": target_ref(pod)}


def _without_headless(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key != HEADLESS}


def _text(value: object) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _is_equal(stored: list[Json], subsets: list[Json]) -> bool:
    """Ignores order and empty fields; the cheap comparisons come first."""
    if stored == subsets:
        return True
    return _ip_addresses(stored) == _ip_addresses(subsets) and _canonical(stored) == _canonical(subsets)


def _ip_addresses(subsets: list[Json]) -> list[tuple[list[str], list[str]]]:
    fields = ("addresses", "notReadyAddresses")
    rows = ([sorted(row.get("ip") or "" for row in subset.get(field) or []) for field in fields] for subset in subsets)
    return sorted((ready, not_ready) for ready, not_ready in rows)


def _canonical(subsets: list[Json]) -> list[bytes]:
    """The subsets as sorted JSON texts, equal for subsets that differ in order or empty fields only."""
    texts = []
    for subset in subsets:
        rows = {
            field: sorted(_text(_significant(row)).decode() for row in subset.get(field) or [])
            for field in ("addresses", "notReadyAddresses", "ports")
        }
        texts.append(_text(rows))
    return sorted(texts)


def _significant(row: Json) -> Json:
    fields = {key: value for key, value in row.items() if value != ""}
    ref = {key: value for key, value in (row.get("targetRef") or {}).items() if key != "resourceVersion"}
    return {**fields, "targetRef": ref} if ref else fields


def _truncated(subsets: list[Json]) -> tuple[list[Json], bool]:
    """At most `CAPACITY` addresses, ready ones first, from each subset in proportion, and whether any are omitted."""
    ready = sum(len(subset.get("addresses") or []) for subset in subsets)
    not_ready = sum(len(subset.get("notReadyAddresses") or []) for subset in subsets)
    if ready + not_ready <= CAPACITY:
        return subsets, False
    field, total, room = ("notReadyAddresses", not_ready, CAPACITY - ready)
    if ready > CAPACITY:
        field, total, room = "addresses", ready, CAPACITY
    remaining, truncated = room, []
    for subset in subsets:
        count = min(math.ceil(len(subset.get(field) or []) * room / total), remaining)
        remaining -= count
        cut = {**subset, field: (subset.get(field) or [])[:count]}
        if field == "addresses":
            cut["notReadyAddresses"] = []
        cut = {key: value for key, value in cut.items() if value}
        if "addresses" in cut or "notReadyAddresses" in cut:
            truncated.append(cut)
    return truncated, True
