"""Which zone each endpoint serves under topology-mode Auto (k8s.io/endpointslice, topologycache).

Zones get endpoints in proportion to the CPU of their nodes. An endpoint serves its own zone; zones that have too many
give some to zones that have too few. Where that cannot be fair there are no hints at all, and an Event says why.

Differs: where two zones are alike, the first by name is taken; kube-controller-manager takes any.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kdns.controlplane.kinds import Json
from kdns.controlplane.quantities import quantity

ZONE: Final = "topology.kubernetes.io/zone"
ANNOTATIONS: Final = ("service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode")
"""The older annotation wins when both are there."""

OVERLOAD: Final = 0.2
"""How much more than its share an endpoint may have to serve."""

NO_ZONE: Final = "One or more endpoints do not have a zone specified"
NO_NODES: Final = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
TOO_FEW: Final = "Insufficient number of endpoints"
OVERLOADED: Final = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold"
NONE_ALLOCATED: Final = "No hints allocated for zones"

_NOT_COUNTED: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")

Shares = Mapping[str, float]
"""Zone → its part of the cluster's CPU; empty where nodes do not say enough."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Slices with their hints. `allocated` counts endpoints by zone; without any, `problem` says why."""

    create: list[Json]
    update: list[Json]
    allocated: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""


def is_auto(service: Json) -> bool:
    """Whether the Service asks for hints by its annotation, which overrides spec.trafficDistribution."""
    annotations = service["metadata"].get("annotations") or {}
    values = [annotations[name] for name in ANNOTATIONS if name in annotations]
    return bool(values) and values[0] in {"Auto", "auto"}


def zone_shares(nodes: Iterable[Json]) -> Shares:
    """The CPU of ready nodes by zone, as parts of the whole; empty with fewer than two zones or any gap."""
    by_zone: dict[str, int] = {}
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        if any(label in labels for label in _NOT_COUNTED) or not is_node_ready(node):
            continue
        zone, cpu = labels.get(ZONE), node_cpu(node)
        if not zone or not cpu:
            return {}
        by_zone[zone] = by_zone.get(zone, 0) + cpu
    total = sum(by_zone.values())
    return {zone: cpu / total for zone, cpu in sorted(by_zone.items())} if len(by_zone) > 1 else {}


def is_node_ready(node: Json) -> bool:
    """Whether the node's Ready condition is True."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def node_cpu(node: Json) -> int:
    """Allocatable CPU in thousandths of a core, rounded up; 0 when the node does not say."""
    cpu = quantity(((node.get("status") or {}).get("allocatable") or {}).get("cpu") or "")
    return max(math.ceil(cpu * 1000), 0) if cpu else 0


def is_overloaded(allocated: Mapping[str, int], shares: Shares) -> bool:
    """Whether a zone has too few of the endpoints that were shared out, now that nodes have changed."""
    total = sum(allocated.values())
    return bool(allocated) and (
        not shares or any(allocated.get(zone, 0) < _least(total * share) for zone, share in shares.items())
    )


def with_hints(create: Sequence[Json], update: Sequence[Json], unchanged: Sequence[Json], shares: Shares) -> Hints:
    """Slices to write, with hints; those of `unchanged` whose hints do not fit are among the updates.

    The slices of `create` and `update` are all of one family and hold no hints yet.
    """
    everything = [*create, *update, *unchanged]
    total = sum(is_ready(endpoint) for each in everything for endpoint in _endpoints(each))
    wanted, problem = _allocations(total, shares)
    if not problem and any(is_ready(each) and not each.get("zone") for one in everything for each in _endpoints(one)):
        problem = NO_ZONE
    if problem:
        return without_hints(create, update, unchanged, problem)
    allocated: dict[str, int] = {}
    open_update = list(update)
    for each in unchanged:
        counted = _counted(each, allocated, wanted)
        if counted is None:
            open_update.append(each)
            continue
        for zone, count in counted.items():
            allocated[zone] = allocated.get(zone, 0) + count
    placed = [_zones(each) for each in (*create, *open_update)]
    for zone in (zone for zones in placed for zone in zones if zone):
        allocated[zone] = allocated.get(zone, 0) + 1
    _redistribute(placed, *_giving_and_receiving(wanted, allocated), allocated)
    if not allocated:
        return without_hints(create, update, unchanged, NONE_ALLOCATED)
    written = [_rewritten(each, zones) for each, zones in zip((*create, *open_update), placed, strict=True)]
    return Hints(written[: len(create)], written[len(create) :], allocated)


def without_hints(create: Sequence[Json], update: Sequence[Json], unchanged: Sequence[Json], problem: str) -> Hints:
    """The slices without hints; those of `unchanged` that have some are among the updates."""
    stale = [each for each in unchanged if any(endpoint.get("hints") for endpoint in _endpoints(each))]
    bare = [_rewritten(each, [""] * len(_endpoints(each))) for each in (*create, *update, *stale)]
    return Hints(bare[: len(create)], bare[len(create) :], problem=problem)


@dataclass(frozen=True, slots=True)
class _Allocation:
    """How many endpoints a zone should have, and how many it may."""

    desired: float
    maximum: int


def _allocations(total: int, shares: Shares) -> tuple[dict[str, _Allocation], str]:
    if not shares:
        return {}, NO_NODES
    said = f"({total} endpoints, {len(shares)} zones)"
    if len(shares) > total:
        return {}, f"{TOO_FEW} {said}"
    least = {zone: _least(share * total) for zone, share in shares.items()}
    spare = total - sum(least.values())
    if spare < 0:
        return {}, f"{OVERLOADED} {said}"
    found = {zone: _Allocation(max(share * total, least[zone]), least[zone] + spare) for zone, share in shares.items()}
    return found, ""


def _least(desired: float) -> int:
    return math.ceil(desired * (1 / (1 + OVERLOAD)))


def is_ready(endpoint: Json) -> bool:
    """Whether the endpoint's ready condition is true; a missing one is not."""
    return bool((endpoint.get("conditions") or {}).get("ready"))


def _endpoints(each: Json) -> list[Json]:
    return each.get("endpoints") or []


def _zones(each: Json) -> list[str]:
    """The zone of each endpoint that can have a hint; "" for the others."""
    return [endpoint["zone"] if is_ready(endpoint) else "" for endpoint in _endpoints(each)]


def _counted(each: Json, allocated: Mapping[str, int], wanted: Mapping[str, _Allocation]) -> dict[str, int] | None:
    """Hints of a slice by zone; None when one is missing, is for an unknown zone, or a zone gets too many."""
    counted: dict[str, int] = {}
    for endpoint in _endpoints(each):
        if not is_ready(endpoint):
            continue
        zones = [zone.get("name", "") for zone in (endpoint.get("hints") or {}).get("forZones") or []]
        if not zones or any(zone not in wanted for zone in zones):
            return None
        for zone in zones:
            counted[zone] = counted.get(zone, 0) + 1
    if any(count + allocated.get(zone, 0) > wanted[zone].maximum for zone, count in counted.items()):
        return None
    return counted


def _giving_and_receiving(
    wanted: Mapping[str, _Allocation], allocated: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """How many endpoints zones hand over, and how many they get."""
    over = {zone: allocated.get(zone, 0) - each.desired for zone, each in wanted.items()}
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
    placed: list[list[str]], giving: dict[str, int], receiving: dict[str, int], allocated: dict[str, int]
) -> None:
    """Move hints in `placed` from giving zones to receiving ones, and count along in `allocated`."""
    for zones in placed:
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
