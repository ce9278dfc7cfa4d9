"""Topology hints of Services with topology-mode Auto (k8s.io/endpointslice, topologycache).

Endpoints are allocated to zones in proportion to the CPU of their nodes: each to its own zone first, then zones with
too many give some to zones with too few. If a zone would be overloaded, no hints are set, and an Event reports it.

Differs: of two zones with equal numbers, the first by name is taken; kube-controller-manager takes either.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kdns.controlplane.meta.kinds import Json
from kdns.controlplane.meta.quantities import quantity

ZONE: Final = "topology.kubernetes.io/zone"
ANNOTATIONS: Final = ("service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode")
"""The first, deprecated annotation takes precedence."""

OVERLOAD: Final = 0.2
"""How much more than its share of CPU an endpoint may have to serve."""

NO_ZONE: Final = "One or more endpoints do not have a zone specified"
NO_NODES: Final = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
TOO_FEW: Final = "Insufficient number of endpoints"
OVERLOADED: Final = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold"
NONE_ALLOCATED: Final = "No hints allocated for zones"

_EXCLUDED: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")

Shares = Mapping[str, float]
"""Zone → its share of the cluster's CPU; empty if a node lacks a zone or allocatable CPU."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Slices with their hints. `allocated` has the number of endpoints by zone; `problem` says why some lack."""

    create: list[Json]
    update: list[Json]
    allocated: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""


def is_auto(service: Json) -> bool:
    """Returns whether the annotation of the Service requests hints; it overrides spec.trafficDistribution."""
    annotations = service["metadata"].get("annotations") or {}
    values = [annotations[name] for name in ANNOTATIONS if name in annotations]
    return bool(values) and values[0] in {"Auto", "auto"}


def zone_shares(nodes: Iterable[Json]) -> Shares:
    """Returns the zones' shares of the CPU of ready nodes; empty for fewer than two zones or a missing value."""
    by_zone: dict[str, int] = {}
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        if any(label in labels for label in _EXCLUDED) or not is_node_ready(node):
            continue
        zone, cpu = labels.get(ZONE), node_cpu(node)
        if not zone or not cpu:
            return {}
        by_zone[zone] = by_zone.get(zone, 0) + cpu
    total = sum(by_zone.values())
    return {zone: cpu / total for zone, cpu in sorted(by_zone.items())} if len(by_zone) > 1 else {}


def is_node_ready(node: Json) -> bool:
    """Returns whether the node's Ready condition is True."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def node_cpu(node: Json) -> int:
    """Returns the allocatable CPU in millicores, rounded up; 0 if it is missing."""
    cpu = quantity(((node.get("status") or {}).get("allocatable") or {}).get("cpu") or "")
    return max(math.ceil(cpu * 1000), 0) if cpu else 0


def is_overloaded(allocated: Mapping[str, int], shares: Shares) -> bool:
    """Returns whether a zone has fewer of the allocated endpoints than the nodes' present CPU needs."""
    total = sum(allocated.values())
    return bool(allocated) and (
        not shares or any(allocated.get(zone, 0) < _least(total * share) for zone, share in shares.items())
    )


def with_hints(create: Sequence[Json], update: Sequence[Json], unchanged: Sequence[Json], shares: Shares) -> Hints:
    """Returns the slices with hints; those of `unchanged` whose hints are wrong are added to the updates.

    All slices are of one family. Those of `create` and `update` have no hints yet.
    """
    slices = [*create, *update, *unchanged]
    total = sum(is_ready(endpoint) for each in slices for endpoint in _endpoints(each))
    allocations, problem = _allocations(total, shares)
    if not problem and any(is_ready(each) and not each.get("zone") for one in slices for each in _endpoints(one)):
        problem = NO_ZONE
    if problem:
        return without_hints(create, update, unchanged, problem)
    allocated: dict[str, int] = {}
    updated = list(update)
    for each in unchanged:
        counted = _hints_by_zone(each, allocated, allocations)
        if counted is None:
            updated.append(each)
            continue
        for zone, count in counted.items():
            allocated[zone] = allocated.get(zone, 0) + count
    zones_of = [_zones(each) for each in (*create, *updated)]
    for zone in (zone for zones in zones_of for zone in zones if zone):
        allocated[zone] = allocated.get(zone, 0) + 1
    _redistribute(zones_of, *_surplus_and_deficit(allocations, allocated), allocated)
    if not allocated:
        return without_hints(create, update, unchanged, NONE_ALLOCATED)
    written = [_rewritten(each, zones) for each, zones in zip((*create, *updated), zones_of, strict=True)]
    return Hints(written[: len(create)], written[len(create) :], allocated)


def without_hints(create: Sequence[Json], update: Sequence[Json], unchanged: Sequence[Json], problem: str) -> Hints:
    """Returns the slices without hints; those of `unchanged` that have hints are added to the updates."""
    stale = [each for each in unchanged if any(endpoint.get("hints") for endpoint in _endpoints(each))]
    bare = [_rewritten(each, [""] * len(_endpoints(each))) for each in (*create, *update, *stale)]
    return Hints(bare[: len(create)], bare[len(create) :], problem=problem)


@dataclass(frozen=True, slots=True)
class _Allocation:
    """The desired and the maximal number of endpoints of a zone."""

    desired: float
    maximum: int


def _allocations(total: int, shares: Shares) -> tuple[dict[str, _Allocation], str]:
    if not shares:
        return {}, NO_NODES
    numbers = f"({total} endpoints, {len(shares)} zones)"
    if len(shares) > total:
        return {}, f"{TOO_FEW} {numbers}"
    least = {zone: _least(share * total) for zone, share in shares.items()}
    spare = total - sum(least.values())
    if spare < 0:
        return {}, f"{OVERLOADED} {numbers}"
    allocations = {
        zone: _Allocation(max(share * total, least[zone]), least[zone] + spare) for zone, share in shares.items()
    }
    return allocations, ""


def _least(desired: float) -> int:
    return math.ceil(desired * (1 / (1 + OVERLOAD)))


def is_ready(endpoint: Json) -> bool:
    """Returns whether the endpoint's ready condition is true."""
    return bool((endpoint.get("conditions") or {}).get("ready"))


def _endpoints(each: Json) -> list[Json]:
    return each.get("endpoints") or []


def _zones(each: Json) -> list[str]:
    """Returns the zone of each endpoint that can have a hint; "" for the others."""
    return [endpoint["zone"] if is_ready(endpoint) else "" for endpoint in _endpoints(each)]


def _hints_by_zone(
    each: Json, allocated: Mapping[str, int], allocations: Mapping[str, _Allocation]
) -> dict[str, int] | None:
    """Returns the number of a slice's hints by zone; None if an endpoint has no hint or a wrong one, or a zone has too
    many.
    """
    counted: dict[str, int] = {}
    for endpoint in _endpoints(each):
        if not is_ready(endpoint):
            continue
        zones = [zone.get("name", "") for zone in (endpoint.get("hints") or {}).get("forZones") or []]
        if not zones or any(zone not in allocations for zone in zones):
            return None
        for zone in zones:
            counted[zone] = counted.get(zone, 0) + 1
    if any(count + allocated.get(zone, 0) > allocations[zone].maximum for zone, count in counted.items()):
        return None
    return counted


def _surplus_and_deficit(
    allocations: Mapping[str, _Allocation], allocated: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Returns how many endpoints zones give, and how many they take."""
    over = {zone: allocated.get(zone, 0) - each.desired for zone, each in allocations.items()}
    gives = {zone: by for zone, by in over.items() if by > 0}
    takes = {zone: -by for zone, by in over.items() if by < 0}
    giving: dict[str, int] = {}
    receiving: dict[str, int] = {}
    while gives and takes:
        giver, taker = max(gives, key=lambda zone: gives[zone]), max(takes, key=lambda zone: takes[zone])
        if max(gives[giver], takes[taker]) < 1 or min(gives[giver], takes[taker]) < 0.5:
            break
        giving[giver] = giving.get(giver, 0) + 1
        receiving[taker] = receiving.get(taker, 0) + 1
        gives[giver] -= 1
        takes[taker] -= 1
    return giving, receiving


def _redistribute(
    zones_of: list[list[str]], giving: dict[str, int], receiving: dict[str, int], allocated: dict[str, int]
) -> None:
    """Moves hints in `zones_of` from giving zones to receiving ones, and updates the counts in `allocated`."""
    for zones in zones_of:
        for index, zone in enumerate(zones):
            if not receiving:
                return
            if not giving.get(zone):
                continue
            taker = next(iter(receiving))
            zones[index] = taker
            giving[zone] -= 1
            receiving[taker] -= 1
            if not receiving[taker]:
                del receiving[taker]
            allocated[zone] -= 1
            allocated[taker] = allocated.get(taker, 0) + 1


def _rewritten(each: Json, zones: Sequence[str]) -> Json:
    endpoints = []
    for endpoint, zone in zip(_endpoints(each), zones, strict=True):
        bare = {name: value for name, value in endpoint.items() if name != "hints"}
        endpoints.append({**bare, "hints": {"forZones": [{"name": zone}]}} if zone else bare)
    return {**each, "metadata": {**each["metadata"]}, "endpoints": endpoints}
