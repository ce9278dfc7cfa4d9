"""Recorded runs of the Endpoints and EndpointSlice controllers. Order within lists does not matter.

Slices are made by the controller itself, fed event by event; after each run it must have nothing left to do.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from itertools import count, groupby
from operator import itemgetter
from typing import TypeAlias

from desired_endpoints import desired_endpoints
from recorded_cases import each_case, recorded

from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, NODE, POD, SERVICE, Json, Kind
from kdns.controlplane.controllers.reconciler import Change, Request
from kdns.controlplane.endpoints.endpointslice_controller import CONTROLLER, EndpointSliceController
from kdns.controlplane.endpoints.pod_endpoints import MANAGED_BY, SERVICE_NAME
from kdns.controlplane.endpoints.service_index import ServiceIndex

LEFT_OUT = (("protocol", "TCP"), ("port", 0))  # defaults the recorded objects lack; targetPort 0 is never stored
TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"
KNOWN: dict[str, str] = {
    **dict.fromkeys(
        (
            "endpointslice.TestReconcileTopology.func1 (2)",
            "endpointslice.TestReconcileTopology.func1 (4)",
            "endpointslice.TestReconcile_TrafficDistribution.func1 (2)",
        ),
        "The annotation for topology hints by the CPU of zones has no effect; spec.trafficDistribution replaces it.",
    ),
    "endpointslice.TestReconcile_TrafficDistribution.func1 (5)": "The gate PreferSameTrafficDistribution is always on.",
}
"""Slice cases in which kdns differs, with the reason."""


def plain(value: object) -> object:
    """Without what is not significant: empty values, names made up, times; lists as sorted texts."""
    if isinstance(value, dict):
        skipped = {"resourceVersion", "generation", TRIGGER, "generateName", "apiVersion", "uid", "selfLink"}
        pairs = {
            key: plain(inner) for key, inner in value.items() if key not in skipped and (key, inner) not in LEFT_OUT
        }
        return {key: inner for key, inner in pairs.items() if inner not in ("", None, [], {})}
    if isinstance(value, list):
        inners = [inner for inner in map(plain, value) if inner != {}]
        return sorted(inners, key=lambda inner: json.dumps(inner, sort_keys=True))
    return value


@each_case(recorded("endpoints-controller-cases.json")["cases"], itemgetter("upstreamTest"))
def test_endpoints(name: str, case: Json) -> None:
    if case.get("compact"):
        made, wanted = compact_endpoints(case)
    else:
        case = deepcopy(case)
        result = desired_endpoints(case["service"], case["pods"] or [], case["current"], "")
        for each in (result, case["expect"]):
            if each:
                each["metadata"].pop("namespace", None)
                each.pop("kind", None)
        made, wanted = plain(result), None if case["noop"] and not case["create"] else plain(case["expect"])
    assert made == wanted, name


def compact_endpoints(case: Json) -> tuple[object, object]:
    pods = [pod(number, ready=number < case["numReadyPods"]) for number in range(case["numPods"])]
    meta = {"name": "foo", "resourceVersion": "1", "annotations": case["currentAnnotations"]}
    made = desired_endpoints(case["service"], pods, {"metadata": meta}, "") or {}
    sizes = [
        {"ready": len(subset.get("addresses") or []), "notReady": len(subset.get("notReadyAddresses") or [])}
        for subset in made["subsets"]
    ]
    wanted = [{key: row[key] for key in ("ready", "notReady")} for row in case["expectSubsetSizes"]]
    return (made["metadata"].get("annotations") or {}, sizes), (case["expectAnnotations"], wanted)


def pod(number: int, *, ready: bool = True, port: int = 0) -> Json:
    ip = f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"podIP": ip, "podIPs": [{"ip": ip}], "conditions": [condition]}
    meta = {"name": f"pod{number}", "namespace": "test", "labels": {"foo": "bar"}}
    container = {"ports": [{"name": "http", "containerPort": port}]} if port else {}
    return {"metadata": meta, "spec": {"nodeName": "node-1", "containers": [container]}, "status": status}


class Cluster:
    """One EndpointSlice controller with the objects it follows; `actions` counts its writes by verb."""

    def __init__(self, most: int, service: Json, *, pods: Iterable[Json], nodes: Iterable[Json]) -> None:
        self.controller = EndpointSliceController(ServiceIndex(), most)
        self.revisions, self.slices = count(1), {}
        self.request = (service["metadata"].get("namespace", ""), service["metadata"]["name"])
        service["metadata"].setdefault("uid", "uid")
        for kind, objects in ((NODE, nodes), (POD, pods), (SERVICE, [service])):
            for obj in objects:
                self.tell(kind, obj)

    slices: dict[str, Json]

    def tell(self, kind: Kind, obj: Json, *, deleted: bool = False) -> None:
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        if kind == ENDPOINT_SLICE:
            self.slices.pop(key[1], None)
            if not deleted:
                self.slices[key[1]] = obj
        self.controller.observe(Change(kind, key, None if deleted else obj, next(self.revisions)))

    def run(self) -> tuple[Counter[str], str]:
        """Let the controller do its work: its writes by verb, and the error of which it told."""
        actions, error = self.once()
        again, _ = self.once()
        assert not again, f"a second look wrote {again}"
        return actions, error

    def once(self) -> tuple[Counter[str], str]:
        result = self.controller.reconcile(Request(self.request, 0))
        for action in result.actions:
            made = deepcopy(action.obj)
            made["metadata"].setdefault("name", f"made-{next(self.revisions)}")
            self.tell(ENDPOINT_SLICE, made, deleted=action.verb == "delete")
        told = [event.message for event in result.events if event.reason == "FailedToUpdateEndpointSlices"]
        return Counter(action.verb for action in result.actions), told[0].split(": ", 1)[1] if told else ""

    def sizes(self) -> list[int]:
        return sorted(len(endpoint_slice.get("endpoints") or []) for endpoint_slice in self.slices.values())


def full_case(case: Json) -> tuple[object, object]:
    pods, nodes = case["pods"] or [], case["nodes"] or []
    for each in pods:  # the recorded run hands over the Pods that were selected
        each["metadata"]["labels"] = {**(each["metadata"].get("labels") or {}), **case["service"]["spec"]["selector"]}
    cluster = Cluster(case["maxEndpointsPerSlice"], case["service"], pods=pods, nodes=nodes)
    for number, each in enumerate(case["existing"] or []):
        each["metadata"].setdefault("name", f"foo-{number}")
        each["metadata"]["namespace"] = cluster.request[0]
        handed_over(case, each)
        cluster.tell(ENDPOINT_SLICE, each)
    _, error = cluster.run()
    made, wanted = list(cluster.slices.values()), case["expect"] or []
    for each in (*made, *wanted):
        handed_over(case, each)
        each["metadata"].pop("name", None)
        each["metadata"].pop("namespace", None)
        each.pop("kind", None)
    return (plain(made), error), (plain(wanted), case["error"])


def handed_over(case: Json, each: Json) -> None:
    """The recorded run hands over slices that, in a cluster, these labels would lead to."""
    found_by = {SERVICE_NAME: case["service"]["metadata"]["name"], MANAGED_BY: CONTROLLER}
    each["metadata"]["labels"] = {**(each["metadata"].get("labels") or {}), **found_by}


Move: TypeAlias = Callable[[Cluster, Json], Counter[str]]


def from_nothing(cluster: Cluster, case: Json) -> Counter[str]:
    pods = case["numPods"]
    for number in range(pods):
        cluster.tell(POD, pod(number, ready=number % 3 != 0, port=8080 + number % 5))
    return cluster.run()[0]


def recycled(cluster: Cluster, case: Json) -> Counter[str]:
    spread(cluster, case, [range(30 * number, 30 * number + 30) for number in range(10)])
    assert cluster.run()[0] == {}, "all pods are in slices: nothing is repacked"
    return Counter()


def changed(cluster: Cluster, case: Json) -> Counter[str]:
    """The case before, then its Service as this case has it."""
    cluster.tell(SERVICE, {**case["service"], "metadata": {"uid": "uid", **case["service"]["metadata"]}})
    return cluster.run()[0]


def some_there(cluster: Cluster, case: Json) -> Counter[str]:
    spread(cluster, case, [range(first, case["numPods"] - 4, 4) for first in (1, 3)])
    for number in range(case["numPods"]):
        cluster.tell(POD, pod(number))
    return cluster.run()[0]


def update_packing(cluster: Cluster, case: Json) -> Counter[str]:
    spread(cluster, case, [range(80), range(100, 120)])
    for position, number in enumerate([*range(80), *range(100, 120)]):
        cluster.tell(POD, pod(number, ready=position % 10 != 0))
    for number in range(200, 215):
        cluster.tell(POD, pod(number))
    return cluster.run()[0]


def deprecated(cluster: Cluster, case: Json) -> Counter[str]:
    spread(cluster, case, [range(80), range(100, 150)], address_type="IP")
    actions = cluster.run()[0]
    assert {endpoint_slice["addressType"] for endpoint_slice in cluster.slices.values()} == {"IPv4"}
    return actions


def spread(cluster: Cluster, case: Json, parts: Iterable[range], *, address_type: str = "IPv4") -> None:
    """Slices that hold the Pods of these numbers, as the controller itself would have laid them out."""
    for part in parts:
        scratch = Cluster(1000, deepcopy(case["service"]), pods=map(pod, part), nodes=[NODE_1])
        scratch.run()
        (laid,) = scratch.slices.values()
        laid["metadata"]["name"] = f"there-{part.start}"
        cluster.tell(ENDPOINT_SLICE, {**laid, "addressType": address_type})
        for number in part:
            cluster.tell(POD, pod(number))


NODE_1 = {"metadata": {"name": "node-1"}}
COMPACT: dict[str, tuple[Move, dict[str, int]]] = {
    # test: what happens, what is written
    "TestReconcileManyPods": (from_nothing, {"create": 3}),
    "TestReconcileEndpointSlicesSomePreexisting": (some_there, {"create": 1, "update": 1}),
    "TestReconcileEndpointSlicesSomePreexistingWorseAllocation": (some_there, {"create": 2}),
    "TestReconcileEndpointSlicesUpdating": (from_nothing, {"create": 3}),
    "TestReconcileEndpointSlicesUpdating again": (changed, {"update": 3}),
    "TestReconcileEndpointSlicesServicesLabelsUpdating": (from_nothing, {"create": 3}),
    "TestReconcileEndpointSlicesServicesLabelsUpdating again": (changed, {"update": 3}),
    "TestReconcileEndpointSlicesServicesReservedLabels": (from_nothing, {"create": 3}),
    "TestReconcileEndpointSlicesServicesReservedLabels again": (changed, {}),
    "TestReconcileEndpointSlicesRecycling": (recycled, {}),
    "TestReconcileEndpointSlicesRecycling again": (changed, {"update": 3, "delete": 7}),
    "TestReconcileEndpointSlicesUpdatePacking": (update_packing, {"update": 2}),
    "TestReconcileEndpointSlicesReplaceDeprecated": (deprecated, {"create": 2, "delete": 2}),
    "TestReconcileEndpointSlicesNamedPorts": (from_nothing, {"create": 5}),
    "TestReconcileMaxEndpointsPerSlice": (from_nothing, {}),
}


def slice_tests() -> Iterator[list[Json]]:
    """The recorded cases; those of a test that goes on with the slices of the one before come together."""
    for is_compact, cases in groupby(
        recorded("endpointslice-reconciler-cases.json")["cases"], lambda case: bool(case.get("compact"))
    ):
        if is_compact:
            yield from (list(group) for _, group in groupby(cases, itemgetter("upstreamTest")))
        else:
            yield from ([case] for case in cases)


@each_case(slice_tests(), lambda cases: str(cases[0]["upstreamTest"]), KNOWN)
def test_endpoint_slices(name: str, case: list[Json]) -> None:
    cluster: Cluster | None = None
    for each in case:
        if not each.get("compact"):
            made, wanted = full_case(each)
            assert made == wanted, name
            continue
        test = each["upstreamTest"].split(".")[1]
        move, wrote = COMPACT[test]
        if cluster and f"{test} again" in COMPACT:
            move, wrote = COMPACT[f"{test} again"]
        else:
            cluster = Cluster(each["maxEndpointsPerSlice"], deepcopy(each["service"]), pods=[], nodes=[NODE_1])
            assert not each["existingSizes"] or move is not from_nothing
        actions = move(cluster, each)
        if test == "TestReconcileMaxEndpointsPerSlice":
            wrote = {"create": len(each["expectSizes"])}
        assert (cluster.sizes(), dict(actions)) == (sorted(each["expectSizes"]), wrote)
