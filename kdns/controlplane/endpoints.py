"""The Endpoints of a Service with a selector (kube-controller-manager: pkg/controller/endpoint)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

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


def desired_endpoints(service: Json, pods: Iterable[Json], existing: Json | None, trigger: str) -> Json | None:
    """The Endpoints as they should be written, or None when what exists says the same.

    `trigger` is the time of the change that led here (RFC 3339); "" leaves no annotation.
    """
    subsets, truncated = _truncated(_subsets(service, pods))
    meta = (existing or {}).get("metadata") or {}
    annotations = {
        key: value for key, value in (meta.get("annotations") or {}).items() if key not in {TRIGGER_TIME, OVER_CAPACITY}
    }
    if truncated:
        annotations[OVER_CAPACITY] = "truncated"
    labels = {**_without_headless(service["metadata"].get("labels") or {}), **MANAGED_BY}
    if existing and meta.get("resourceVersion"):
        same = _plain(existing.get("subsets") or []) == _plain(subsets)
        same &= _without_headless(meta.get("labels") or {}) == labels
        same &= (meta.get("annotations") or {}).get(OVER_CAPACITY) == annotations.get(OVER_CAPACITY)
        if same:
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


def _without_headless(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key != HEADLESS}


def _subsets(service: Json, pods: Iterable[Json]) -> list[Json]:
    """Addresses grouped by identical sets of ports, ready and not ready apart."""
    groups: dict[bytes, tuple[list[Json], list[Json], list[Json]]] = {}
    for pod in pods:
        address = _address(service, pod)
        if address is None:
            continue
        ports = target_ports(pod, service)
        if not ports and not is_portless(service):
            continue
        rows = [{key: value for key, value in port.items() if value != ""} for port in ports]
        rows.sort(key=_text)
        _, ready, waiting = groups.setdefault(_text(rows), (rows, [], []))
        (ready if is_ready(pod) or publishes_not_ready(service) else waiting).append(address)
    subsets = []
    for rows, ready, waiting in groups.values():
        fields = {"addresses": _ordered(ready), "notReadyAddresses": _ordered(waiting), "ports": rows}
        subsets.append({key: value for key, value in fields.items() if value})
    return sorted(subsets, key=_text)


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


def _text(value: object) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _ordered(addresses: list[Json]) -> list[Json]:
    return sorted(addresses, key=lambda address: str(address["ip"]))


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
