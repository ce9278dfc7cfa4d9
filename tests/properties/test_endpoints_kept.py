"""What the endpoint controllers keep of a Service's Pods equals what they would work out from scratch.

Pods, nodes and the Service change in any order, between looks and several at once; then a controller that saw it all
has written what one that starts now finds nothing to change about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, NODE, POD, SERVICE, Json, Kind
from kdns.controlplane.controllers.reconciler import Change, Reconciler, Request
from kdns.controlplane.endpoints.endpoints_controller import EndpointsController
from kdns.controlplane.endpoints.endpointslice_controller import EndpointSliceController
from kdns.controlplane.endpoints.service_index import ServiceIndex

Step: TypeAlias = tuple[str, int, int]
PER_SLICE = 3


def controllers() -> tuple[Reconciler, ...]:
    index = ServiceIndex()
    return EndpointsController(index), EndpointSliceController(index, PER_SLICE)


class World:
    """Objects, and controllers that are told of every change, their own included."""

    def __init__(self) -> None:
        self.controllers, self.revisions = controllers(), count(1)
        self.objects: dict[tuple[Kind, Key], Json] = {}

    def put(self, kind: Kind, key: Key, obj: Json | None) -> None:
        revision = next(self.revisions)
        self.objects.pop((kind, key), None)
        if obj is not None:
            obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}
            self.objects[kind, key] = obj
        for controller in self.controllers:
            if kind in controller.watches:
                controller.observe(Change(kind, key, obj, revision))

    def look(self) -> int:
        """What all controllers write; the number of writes."""
        writes = 0
        for controller in self.controllers:
            for action in controller.reconcile(Request(("x", "svc"), 0)).actions:
                name = action.obj["metadata"].setdefault("name", f"svc-{next(self.revisions)}")
                self.put(action.kind, ("x", name), None if action.verb == "delete" else action.obj)
                writes += 1
        return writes

    def restarted(self) -> World:
        other = World()
        for (kind, key), obj in self.objects.items():
            other.put(kind, key, obj)
        return other

    def addresses(self, kind: Kind) -> Iterator[tuple[str, bool]]:
        for (each, _), obj in self.objects.items():
            if each == kind == ENDPOINT_SLICE:
                for endpoint in obj.get("endpoints") or []:
                    yield endpoint["addresses"][0], endpoint["conditions"]["ready"]
            elif each == kind == ENDPOINTS:
                for subset in obj.get("subsets") or []:
                    for field, ready in (("addresses", True), ("notReadyAddresses", False)):
                        yield from ((row["ip"], ready) for row in subset.get(field) or [])


def pod(number: int, variant: int) -> Json:
    labels = {"app": "other" if variant == 3 else "a"}
    meta: Json = {"name": f"p{number}", "namespace": "x", "labels": labels, "uid": f"{number}"}
    if variant == 4:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ports = [{"name": "web", "containerPort": 8080 + number % 2}]
    status = {"podIPs": [{"ip": f"10.0.0.{number}"}], "conditions": [{"type": "Ready", "status": str(variant != 1)}]}
    spec = {"nodeName": f"n{number % 2}", "containers": [{"ports": ports if variant != 2 else []}]}
    return {"metadata": meta, "spec": spec, "status": status}


def service(variant: int) -> Json:
    target: str | int = "web" if variant != 1 else 81
    ports = [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": target}]
    spec: Json = {"selector": {"app": "a"}, "ports": ports, "clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"]}
    if variant == 2:
        spec["publishNotReadyAddresses"] = True
    if variant == 4:
        spec["trafficDistribution"] = "PreferSameZone"
    return {"metadata": {"name": "svc", "namespace": "x", "uid": "u", "labels": {"v": str(variant)}}, "spec": spec}


def node(number: int, variant: int) -> Json:
    meta = {"name": f"n{number}", "labels": {"topology.kubernetes.io/zone": f"z{number + variant}"}}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "1"}}
    return {"metadata": meta, "status": status}


def apply(world: World, step: Step) -> None:
    what, number, variant = step
    if what == "pod":
        world.put(POD, ("x", f"p{number}"), pod(number, variant))
    elif what == "no pod" and (POD, ("x", f"p{number}")) in world.objects:
        world.put(POD, ("x", f"p{number}"), None)
    elif what == "service":
        world.put(SERVICE, ("x", "svc"), service(variant))
    elif what == "node":
        world.put(NODE, ("", f"n{number % 2}"), node(number % 2, variant) if variant < 4 else None)
    elif what == "look":
        world.look()
    elif what == "break":
        slices = [(key, obj) for (kind, key), obj in world.objects.items() if kind == ENDPOINT_SLICE]
        if slices:
            key, obj = slices[number % len(slices)]
            world.put(ENDPOINT_SLICE, key, {**obj, "endpoints": (obj.get("endpoints") or [])[: variant % 3]})


KINDS = ("pod", "pod", "pod", "look", "no pod", "service", "node", "break")
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 4)), max_size=60)


@given(STEPS)
def test_kept_equals_rebuilt(steps: list[Step]) -> None:
    world = World()
    world.put(NODE, ("", "n0"), node(0, 0))
    world.put(NODE, ("", "n1"), node(1, 0))
    world.put(SERVICE, ("x", "svc"), service(0))
    for step in steps:
        apply(world, step)
    world.look()
    assert world.look() == 0, "a second look has nothing to write"
    assert world.restarted().look() == 0, "from scratch, there is nothing to write"
    sizes = [len(obj.get("endpoints") or []) for (kind, _), obj in world.objects.items() if kind == ENDPOINT_SLICE]
    assert max(sizes) <= PER_SLICE
    in_slices = Counter(world.addresses(ENDPOINT_SLICE))
    assert set(in_slices.values()) <= {1}, "no endpoint is in two slices"
    nodes = {key[1] for kind, key in world.objects if kind == NODE}
    published = world.objects[SERVICE, ("x", "svc")]["spec"].get("publishNotReadyAddresses")
    mine = [obj for (kind, _), obj in world.objects.items() if kind == POD and obj["metadata"]["labels"]["app"] == "a"]
    reachable = [each for each in mine if published or each["spec"]["nodeName"] in nodes]
    assert {ip for ip, _ in in_slices} == {each["status"]["podIPs"][0]["ip"] for each in reachable}
