"""The Endpoints of a Service with a selector (kube-controller-manager: pkg/controller/endpoint)."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from kdns.cluster.objects import Key
from kdns.controlplane.endpointpods import (
    HEADLESS,
    TRIGGER_TIME,
    addresses_in,
    families_of,
    has_endpoint,
    hostname_in,
    is_portless,
    is_ready,
    pod_ips,
    publishes_not_ready,
    target_ports,
    target_ref,
    wants_headless_label,
)
from kdns.controlplane.kinds import Json
from kdns.controlplane.services import EXTERNAL_NAME, ip_families, spec_of, type_of

CAPACITY = 1000
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
MANAGED_BY = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}


def follows_selector(service: Json) -> bool:
    """Whether controllers make this Service's endpoints from Pods."""
    return spec_of(service).get("selector") is not None and type_of(service) != EXTERNAL_NAME


def wanted_endpoints(service: Json, addresses: Addresses, existing: Json | None, trigger: str) -> Json | None:
    """The Endpoints as they should be written, or None when what exists says the same.

    `trigger` is the time of the change that led here (RFC 3339); "" leaves no annotation.
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
        if same and _says_the_same(existing.get("subsets") or [], subsets):
            return None
    if wants_headless_label(service):
        labels[HEADLESS] = ""
    if trigger:
        annotations[TRIGGER_TIME] = trigger
    name = {"name": service["metadata"]["name"], "namespace": service["metadata"].get("namespace", "")}
    kept = {key: value for key, value in meta.items() if key not in {"labels", "annotations"}}
    metadata = {**name, **kept, "labels": labels, **({"annotations": annotations} if annotations else {})}
    endpoints: Json = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata}
    return {**endpoints, "subsets": subsets} if subsets else endpoints


_Row: TypeAlias = tuple[str, Key, Json]
"""An address, whose it is, and how Endpoints spell it; rows are in order of the first two."""


@dataclass(slots=True)
class _Group:
    """Addresses behind one set of ports, in order."""

    ports: list[Json]
    ready: list[_Row] = field(default_factory=list)
    waiting: list[_Row] = field(default_factory=list)


class Addresses:
    """The addresses of one Service's Pods, by sets of ports; a Pod's change costs that Pod (rosters)."""

    def __init__(self, service: Json) -> None:
        self._service = service
        self._groups: dict[bytes, _Group] = {}
        self._filed: dict[Key, tuple[bytes, bool, _Row]] = {}

    def __len__(self) -> int:
        return len(self._filed)

    def put(self, key: Key, pod: Json | None) -> None:
        """Note a Pod's state; None when it is none of the Service's."""
        new = self._row(key, pod) if pod else None
        old = self._filed.pop(key, None)
        if old:
            self._remove(*old)
        if new:
            ports, is_up, row = new
            text = _text(ports)
            group = self._groups.setdefault(text, _Group(ports))
            insort(group.ready if is_up else group.waiting, row, key=_order)
            self._filed[key] = text, is_up, row

    def subsets(self) -> list[Json]:
        """Subsets of Endpoints: ready and not ready addresses apart."""
        subsets = []
        for _, group in sorted(self._groups.items()):
            fields = {
                "addresses": [row[2] for row in group.ready],
                "notReadyAddresses": [row[2] for row in group.waiting],
                "ports": group.ports,
            }
            subsets.append({key: value for key, value in fields.items() if value})
        return subsets

    def _remove(self, text: bytes, is_up: bool, row: _Row) -> None:
        group = self._groups[text]
        rows = group.ready if is_up else group.waiting
        del rows[bisect_left(rows, _order(row), key=_order)]
        if not group.ready and not group.waiting:
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
    """The Pod as an address, or None when it is no endpoint or has no address of the Service's first family."""
    if not has_endpoint(pod, terminating=publishes_not_ready(service)):
        return None
    family = families_of(service)[0]
    found = addresses_in(pod, family)
    if not found and not ip_families(service):
        found = pod_ips(pod)
    if not found:
        return None
    address: Json = {"ip": found[0]}
    if hostname := hostname_in(pod, service):
        address["hostname"] = hostname
    if node := (pod.get("spec") or {}).get("nodeName"):
        address["nodeName"] = node
    return {**address, "targetRef": target_ref(pod)}


def _without_headless(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key != HEADLESS}


def _text(value: object) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _says_the_same(stored: list[Json], subsets: list[Json]) -> bool:
    """Whether nothing but order and empty fields differs; the dear comparison only where the cheap ones leave doubt."""
    if stored == subsets:
        return True
    return _outline(stored) == _outline(subsets) and _plain(stored) == _plain(subsets)


def _outline(subsets: list[Json]) -> list[tuple[list[str], list[str]]]:
    fields = ("addresses", "notReadyAddresses")
    rows = ([sorted(row.get("ip") or "" for row in subset.get(field) or []) for field in fields] for subset in subsets)
    return sorted((ready, waiting) for ready, waiting in rows)


def _plain(subsets: list[Json]) -> list[bytes]:
    """Subsets as texts that are equal when nothing but order and empty fields differs."""
    plain = []
    for subset in subsets:
        rows = {
            field: sorted(_text(_said(row)).decode() for row in subset.get(field) or [])
            for field in ("addresses", "notReadyAddresses", "ports")
        }
        plain.append(_text(rows))
    return sorted(plain)


def _said(row: Json) -> Json:
    said = {key: value for key, value in row.items() if value != ""}
    ref = {key: value for key, value in (row.get("targetRef") or {}).items() if key != "resourceVersion"}
    return {**said, "targetRef": ref} if ref else said


def _truncated(subsets: list[Json]) -> tuple[list[Json], bool]:
    """At most 1,000 addresses: the ready ones first, each subset in proportion."""
    ready = sum(len(subset.get("addresses") or []) for subset in subsets)
    waiting = sum(len(subset.get("notReadyAddresses") or []) for subset in subsets)
    if ready + waiting <= CAPACITY:
        return subsets, False
    field, total, room = ("notReadyAddresses", waiting, CAPACITY - ready)
    if ready > CAPACITY:
        field, total, room = "addresses", ready, CAPACITY
    left, kept = room, []
    for subset in subsets:
        count = min(math.ceil(len(subset.get(field) or []) * room / total), left)
        left -= count
        cut = {**subset, field: (subset.get(field) or [])[:count]}
        if field == "addresses":
            cut["notReadyAddresses"] = []
        cut = {key: value for key, value in cut.items() if value}
        if "addresses" in cut or "notReadyAddresses" in cut:
            kept.append(cut)
    return kept, True
