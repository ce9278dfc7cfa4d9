"""Topology hints by zone CPU: tables of zones, then the controller's Events. One letter is one endpoint's zone.

Unready endpoints are written in upper case; `a>b` is an endpoint of zone a with a hint for zone b.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kdns.controlplane.controllers.controller import Result
from kdns.controlplane.controllers.endpoints.endpointslice_controller import EndpointSliceController
from kdns.controlplane.controllers.endpoints.service_index import ServiceIndex
from kdns.controlplane.controllers.endpoints.topology_hints import (
    NO_NODES,
    NO_ZONE,
    OVERLOADED,
    TOO_FEW,
    is_auto,
    is_overloaded,
    node_cpu,
    with_hints,
    zone_shares,
)
from kdns.controlplane.meta.kinds import ENDPOINT_SLICE, NODE, POD, SERVICE, Json, Kind

EVEN = {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}


def one(text: str) -> Json:
    """`a`, `A`, `-` (no zone) or `a>b` as an endpoint."""
    zone, _, hint = text.partition(">")
    endpoint: Json = {"conditions": {"ready": not zone.isupper()}}
    if zone != "-":
        endpoint["zone"] = zone.lower()
    return {**endpoint, "hints": {"forZones": [{"name": hint}]}} if hint else endpoint


def a_slice(text: str) -> Json:
    return {"metadata": {"name": text}, "endpoints": [one(each) for each in text.split()]}


def shown(each: Json) -> str:
    texts = []
    for endpoint in each["endpoints"]:
        zone = endpoint.get("zone", "-")
        hints = [hint["name"] for hint in (endpoint.get("hints") or {}).get("forZones", [])]
        texts.append("".join([zone if endpoint["conditions"]["ready"] else zone.upper(), *(f">{h}" for h in hints)]))
    return " ".join(texts)


CASES = [
    # what, zones' shares, slices to create, to update, unchanged; what is written, problem
    ("own zones", EVEN, ["a b c"], [], [], ["a>a b>b c>c"], ""),
    ("one moves", EVEN, ["a b b b c c"], [], [], ["a>a b>a b>b b>b c>c c>c"], ""),
    ("two move", EVEN, ["c c c"], [], [], ["c>a c>b c>c"], ""),
    ("unready ones have none", EVEN, ["a b c C"], [], [], ["a>a b>b c>c C"], ""),
    ("by CPU", {"a": 0.75, "b": 0.25}, ["b b b b"], [], [], ["b>a b>a b>a b>b"], ""),
    ("unchanged slices stay", EVEN, [], ["a b"], ["c>c"], ["a>a b>b"], ""),
    ("one without hints is opened", EVEN, [], [], ["a b c"], ["a>a b>b c>c"], ""),
    ("one for a zone that is gone", EVEN, [], [], ["a>x b>b c>c"], ["a>a b>b c>c"], ""),
    ("one with too many for a zone", EVEN, [], ["b c"], ["a>a a>a a>a a>a"], ["b>b c>c a>b a>c a>a a>a"], ""),
    ("fewer endpoints than zones", EVEN, ["a b"], [], ["C>c"], ["a b", "C"], f"{TOO_FEW} (2 endpoints, 3 zones)"),
    ("overload", {"a": 0.5, "b": 0.5}, ["a a b"], [], [], ["a a b"], f"{OVERLOADED} (3 endpoints, 2 zones)"),
    ("no nodes", {}, ["a b c"], [], ["c>c", "b"], ["a b c", "c"], NO_NODES),
    ("an endpoint without a zone", EVEN, ["a a b b c -"], [], [], ["a a b b c -"], NO_ZONE),
]


@pytest.mark.parametrize(
    ("shares", "create", "update", "unchanged", "expected", "problem"),
    [c[1:] for c in CASES],
    ids=[c[0] for c in CASES],
)
def test_hints(
    shares: Mapping[str, float],
    create: list[str],
    update: list[str],
    unchanged: list[str],
    expected: list[str],
    problem: str,
) -> None:
    kept = [a_slice(each) for each in unchanged]
    hints = with_hints([a_slice(each) for each in create], [a_slice(each) for each in update], kept, shares)
    written = [shown(each) for each in (*hints.create, *hints.update)]
    if len(expected) == 1:
        written = [" ".join(written)]
    assert (written, hints.problem) == (expected, problem)
    assert [shown(each) for each in kept] == unchanged, "what was stored is not changed in place"


def node(name: str, zone: str = "", cpu: str = "1", *, ready: bool = True, labels: Json | None = None) -> Json:
    labels = {**({"topology.kubernetes.io/zone": zone} if zone else {}), **(labels or {})}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"conditions": conditions, "allocatable": {"cpu": cpu}},
    }


CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}


@pytest.mark.parametrize(
    ("nodes", "shares"),
    [
        ([node("1", "a"), node("2", "b", "3000m")], {"a": 0.25, "b": 0.75}),
        ([node("1", "a"), node("2", "b"), node("3", "b", ready=False)], {"a": 0.5, "b": 0.5}),
        ([node("1", "a"), node("2", "b"), node("3", labels=CONTROL_PLANE)], {"a": 0.5, "b": 0.5}),
        ([node("1", "a"), node("2", "a")], {}),
        ([node("1", "a"), node("2", "b"), node("3")], {}),
        ([node("1", "a"), node("2", "b", "0")], {}),
        ([], {}),
    ],
)
def test_shares(nodes: list[Json], shares: Mapping[str, float]) -> None:
    assert zone_shares(nodes) == shares


@pytest.mark.parametrize(
    ("cpu", "thousandths"),
    [("2", 2000), ("100m", 100), ("0.5", 500), ("1e3m", 0), ("2e1", 20000), ("1k", 1000000), ("100u", 1), ("", 0)],
)
def test_cpu(cpu: str, thousandths: int) -> None:
    assert node_cpu(node("n", cpu=cpu)) == thousandths


@pytest.mark.parametrize(
    ("allocated", "shares", "expected"),
    [
        ({"a": 2, "b": 2}, {"a": 0.5, "b": 0.5}, False),
        ({"a": 3, "b": 1}, {"a": 0.5, "b": 0.5}, True),
        ({"a": 2, "b": 2}, {"a": 0.5, "b": 0.3, "c": 0.2}, True),
        ({"a": 2, "b": 2}, {}, True),
        ({}, {}, False),
    ],
)
def test_overloaded(allocated: Mapping[str, int], shares: Mapping[str, float], expected: bool) -> None:
    assert is_overloaded(allocated, shares) is expected


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"service.kubernetes.io/topology-mode": "Auto"}, True),
        ({"service.kubernetes.io/topology-aware-hints": "auto"}, True),
        ({"service.kubernetes.io/topology-mode": "AUTO"}, False),
        (
            {"service.kubernetes.io/topology-mode": "Auto", "service.kubernetes.io/topology-aware-hints": "disabled"},
            False,
        ),
        (None, False),
    ],
)
def test_who_asks(annotations: Mapping[str, str] | None, expected: bool) -> None:
    assert is_auto({"metadata": {"annotations": annotations}}) is expected


class World:
    """The slice controller, told of what it writes."""

    def __init__(self) -> None:
        self.controller, self.revision = EndpointSliceController(ServiceIndex()), 0

    def tell(self, kind: Kind, name: str, obj: Json | None) -> list[tuple[str, ...]]:
        self.revision += 1
        return list(self.controller.observe(kind, ("" if kind == NODE else "x", name), obj, self.revision))

    def run(self) -> list[str]:
        result: Result = self.controller.reconcile(("x", "svc"), 0, 0)
        for action in result.actions:
            name = action.obj["metadata"].setdefault("name", "svc-1")
            self.tell(ENDPOINT_SLICE, name, action.obj)
            self.written = shown(action.obj)
        return [f"{each.type} {each.reason}: {each.message}" for each in result.events]


def service(**annotations: str) -> Json:
    meta = {"name": "svc", "namespace": "x", "uid": "u", "annotations": annotations}
    return {"metadata": meta, "spec": {"selector": {"app": "a"}, "ipFamilies": ["IPv4"], "ports": [{"port": 80}]}}


AUTO = {"service.kubernetes.io/topology-mode": "Auto"}


def test_events_of_a_service() -> None:
    world = World()
    for zone in "ab":
        world.tell(NODE, zone, node(zone, zone))
    for number, zone in enumerate("aaabbb"):
        meta = {"name": f"p{number}", "namespace": "x", "labels": {"app": "a"}}
        status = {"podIPs": [{"ip": f"10.0.0.{number}"}], "conditions": [{"type": "Ready", "status": "True"}]}
        world.tell(POD, f"p{number}", {"metadata": meta, "spec": {"nodeName": zone}, "status": status})
    world.tell(SERVICE, "svc", service(**AUTO))
    assert world.run() == ["Normal TopologyAwareHintsEnabled: Topology Aware Hints has been enabled, addressType: IPv4"]
    assert world.written == "a>a a>a a>a b>b b>b b>b"
    assert world.run() == []
    assert world.tell(NODE, "a", node("a", "a", "1100m")) == [], "no zone is overloaded"
    assert world.tell(NODE, "c", node("c", "c")) == [("x", "svc")]
    assert world.run() == []
    assert sorted(world.written.split()) == ["a>a", "a>a", "a>c", "b>b", "b>b", "b>c"]
    world.tell(NODE, "c", None)
    assert world.tell(NODE, "b", node("b")) == [("x", "svc")]
    disabled = "Warning TopologyAwareHintsDisabled"
    assert world.run() == [f"{disabled}: {NO_NODES}, addressType: IPv4"]
    assert world.written == "a a a - - -"
    world.tell(NODE, "b", node("b", "b"))
    assert len(world.run()) == 1
    world.tell(SERVICE, "svc", service())
    assert world.run() == [f"{disabled}: Topology Aware Hints has been disabled, addressType: IPv4"]
    assert world.written == "a a a b b b"
    assert world.run() == []
