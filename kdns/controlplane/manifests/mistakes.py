"""Every mistake in manifests, without a cluster: refusals of an empty cluster's API, and conflicts between manifests.

Objects are created one by one in a store of their own, so the rules are those of the API. No controller runs. Fields
whose errors hide further mistakes are removed, and the object is tried again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from itertools import count
from typing import Final

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import NAMESPACE, NODE, SERVICE, SERVICE_CIDR, Json, Kind
from kdns.controlplane.bootstrap import assembled_api, establish_cluster
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.kinds.node import pod_cidrs
from kdns.controlplane.kinds.service.spec import EXTERNAL_NAME, NODE_PORT_TYPES, needs_health_check, spec_of
from kdns.controlplane.manifests.manifest import Key, Manifest, Mistake, in_order
from kdns.controlplane.manifests.three_way_merge import applied
from kdns.controlplane.schema import check
from kdns.controlplane.server.registry import Request
from kdns.controlplane.storage.store import Store
from kdns.net import Address, Network, parse_address, parse_network

_ALLOCATED: Final = re.compile(r"spec\.(clusterIP|ipFamil|healthCheckNodePort|ports\[\d+\]\.nodePort)")
"""Fields of a Service whose values are allocated or filled in before the rules of the other fields apply."""
_HEALTH_CHECK_PORT: Final = "spec.healthCheckNodePort"
_TAKEN: Final = "is already allocated"
_TEXTS: Final = ("metadata.labels", "metadata.annotations")
"""Mistakes in these fields hide no others."""


def manifest_mistakes(
    manifests: Iterable[Manifest], config: ClusterConfig, now_s: float, kinds: Catalogue
) -> list[Mistake]:
    """If several manifests define one object, the first is used. `kinds` are those of the manifests."""
    objects: dict[Key, Manifest] = {}
    mistakes = []
    for manifest in manifests:
        first = objects.setdefault(manifest.key, manifest)
        if first is not manifest:
            where = f"{first.path}:{first.line}"
            reason = f"{manifest.kind.kind} {manifest.name} is already defined at {where}; that definition is used"
            mistakes.append(Mistake(manifest, "", reason))
    trial = _ScratchCluster(objects, config, now_s, kinds)
    for manifest in in_order(objects.values()):
        distinct = dict.fromkeys(trial.mistakes(manifest))
        mistakes += [Mistake(manifest, field, reason) for field, reason in distinct]
    mistakes += _requested_twice(manifest for manifest in trial.well_typed if manifest.kind == SERVICE)
    nodes = [manifest for manifest in trial.well_typed if manifest.kind == NODE]
    return mistakes + list(_overlaps(nodes, trial.service_ranges()))


def refusals(kind: Kind, obj: Json, store: Callable[[Json], object]) -> Iterator[tuple[Json, str, str]]:
    """Every refusal of `store`: the object, the field and the reason.

    After a refusal that hides others, the object is stored again without its field.
    """
    remaining: Json | None = obj
    while remaining is not None:
        try:
            store(remaining)
        except StatusError as error:
            rows = (error.details or {}).get("causes") or ()
            refused = [(row.get("field", ""), row["message"]) for row in rows]
            if "HealthCheck NodePort" in error.message:
                refused = [(_HEALTH_CHECK_PORT, error.message)]
            for field, reason in refused or [("", error.message)]:
                yield remaining, field, reason
            remaining = _without(remaining, [field for field, _ in refused]) if kind == SERVICE else None
        else:
            return


class _ScratchCluster:
    """An in-memory cluster that receives the valid manifests."""

    def __init__(self, objects: dict[Key, Manifest], config: ClusterConfig, now_s: float, kinds: Catalogue) -> None:
        self._objects = objects
        self.well_typed: list[Manifest] = []
        numbers = count()
        self._api = assembled_api(
            config, Store(revision=1), lambda: now_s, lambda _: 0, lambda n: next(numbers) % n, kinds=kinds
        )
        establish_cluster(self._api)
        known = {obj["metadata"]["name"] for obj in self._api.list(Request(NAMESPACE)).items}
        known |= {manifest.name for manifest in objects.values() if manifest.kind == NAMESPACE}
        self._missing = {manifest.namespace for manifest in objects.values()} - {"", *known}
        for name in self._missing:
            with self._api.without_validation():
                self._api.create(Request(NAMESPACE), {"metadata": {"name": name}})

    def service_ranges(self) -> Iterator[tuple[Network, str]]:
        for obj in self._api.list(Request(SERVICE_CIDR)).items:
            for cidr in (obj.get("spec") or {}).get("cidrs") or ():
                if network := parse_network(cidr):
                    yield network, f"ServiceCIDR {obj['metadata']['name']}"

    def mistakes(self, manifest: Manifest) -> Iterator[tuple[str, str]]:
        """Fields and reasons. Then stores the object without the mistaken fields, if that is possible."""
        kind = manifest.kind
        if manifest.namespace in self._missing:
            yield "metadata.namespace", f'namespaces "{manifest.namespace}" not found'
        yield from check.unknown_fields(kind, manifest.obj)
        to_apply = manifest.to_apply(manifest.path)
        if mistyped := check.mistyped_fields(kind, manifest.obj):
            yield from mistyped
            if not all(path.startswith(_TEXTS) for path, _ in mistyped):
                return
            to_apply["metadata"] = {k: v for k, v in to_apply["metadata"].items() if f"metadata.{k}" not in _TEXTS}
        self.well_typed.append(manifest)
        pruned = check.prune(kind, to_apply)
        request = Request(*manifest.key, served_version=kind)
        for obj, field, reason in refusals(kind, pruned, lambda obj: applied(self._api, request, obj)):
            if not (kind == SERVICE and _TAKEN in reason and self._is_ours(obj, field)):
                yield field, reason

    def _is_ours(self, service: Json, field: str) -> bool:
        numbers = self._api.services
        prefix = "spec.clusterIP" if field.startswith("spec.clusterIP") else field
        owners = [
            (numbers.addresses[what].owners if what in numbers.addresses else numbers.ports.owners).get(number)
            for what, number, place in _requested_numbers(service)
            if place.startswith(prefix)
        ]
        return any(owner and (SERVICE, *owner) in self._objects for owner in owners)


def _requested_numbers(service: Json) -> Iterator[tuple[str, int, str]]:
    """The numbers that a Service requests: IP family or "port", the number, and the field."""
    spec = spec_of(service)
    if spec.get("type") != EXTERNAL_NAME:
        texts = [("spec.clusterIP", spec.get("clusterIP"))]
        texts += [(f"spec.clusterIPs[{index}]", text) for index, text in enumerate(spec.get("clusterIPs") or ())]
        for field, text in texts:
            if address := parse_address(text or ""):
                yield f"IPv{address.version}", int(address), field
    if spec.get("type") in NODE_PORT_TYPES:
        for index, port in enumerate(spec.get("ports") or ()):
            if port and port.get("nodePort"):
                yield "port", port["nodePort"], f"spec.ports[{index}].nodePort"
    if needs_health_check(spec) and spec.get("healthCheckNodePort"):
        yield "port", spec["healthCheckNodePort"], _HEALTH_CHECK_PORT


def _requested_twice(services: Iterable[Manifest]) -> Iterator[Mistake]:
    """Addresses and node ports that two Services request: the second Service does not get them."""
    first: dict[tuple[str, int], Manifest] = {}
    for service in services:
        reported = set()
        for what, number, field in _requested_numbers(service.obj):
            other = first.setdefault((what, number), service)
            if other is not service and (what, number) not in reported:
                reported.add((what, number))
                shown = f"node port {number}" if what == "port" else f"cluster IP {_address(what, number)}"
                by = f"Service {other.namespace}/{other.name} at {other.path}:{other.line}"
                yield Mistake(service, field, f"{shown} is also requested by {by}")


def _address(family: str, number: int) -> Address:
    return IPv4Address(number) if family == "IPv4" else IPv6Address(number)


def _without(obj: Json, fields: Sequence[str]) -> Json | None:
    """The Service without the fields that hide others; None if there are no such fields."""
    service = deepcopy(obj)
    spec = spec_of(service)
    for field in filter(_ALLOCATED.match, fields):
        if field.startswith("spec.ports["):
            spec["ports"][int(field.partition("[")[2].partition("]")[0])].pop("nodePort", None)
        elif field == _HEALTH_CHECK_PORT:
            spec.pop("healthCheckNodePort", None)
        else:
            for name in ("clusterIP", "clusterIPs", *(("ipFamilies", "ipFamilyPolicy") if "ipFamil" in field else ())):
                spec.pop(name, None)
    return service if service != obj else None


def _overlaps(nodes: Sequence[Manifest], services: Iterable[tuple[Network, str]]) -> Iterator[Mistake]:
    """Pod CIDRs of Nodes that overlap other ranges. The API accepts them, but routing would fail."""
    rows: list[tuple[Network, str, Mistake | None]] = [(network, name, None) for network, name in services]
    for node in nodes:
        for index, cidr in enumerate(pod_cidrs(node.obj.get("spec") or {})):
            if network := parse_network(cidr or ""):
                where = f"Node {node.name} at {node.path}:{node.line}"
                rows.append((network, where, Mistake(node, f"spec.podCIDRs[{index}]", "")))
    rows.sort(key=lambda row: (row[0].version, int(row[0][0]), -int(row[0][-1])))
    widest = None
    for row in rows:
        if widest is None or row[0].version != widest[0].version or int(row[0][0]) > int(widest[0][-1]):
            widest = row
            continue
        (mine, _, mistake), (theirs, other, _) = (row, widest) if row[2] else (widest, row)
        if mistake:
            yield replace(mistake, reason=f"{mine} overlaps {theirs} of {other}")
