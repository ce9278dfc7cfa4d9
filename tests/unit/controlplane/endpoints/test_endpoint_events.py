"""What the endpoint controllers say: trigger times as annotations, refused writes and left-out Pods as Events."""

from typing import Literal

import pytest
from desired_endpoints import desired_endpoints, pod, service

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, NODE, POD, SERVICE, Json, Kind
from kdns.controlplane.controllers.reconciler import Action, Change, Reconciler, Request
from kdns.controlplane.endpoints.endpoints_controller import EndpointsController
from kdns.controlplane.endpoints.endpointslice_controller import CONTROLLER, EndpointSliceController
from kdns.controlplane.endpoints.mirroring_controller import MirroringController
from kdns.controlplane.endpoints.service_index import ServiceIndex, TriggerTimeTracker

TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"
CREATED = "2026-01-01T00:00:00Z"


BORN: Json = {"creationTimestamp": CREATED}

Look = tuple[dict[str, str | None], str]
TIMES: list[tuple[str, list[Look]]] = [
    # what, then look by look: Pods and since when they are ready (None: gone); the time that is told
    ("a Service not seen before", [({"p": "2026-01-02T00:00:00Z"}, CREATED)]),
    ("nothing new", [({}, CREATED), ({}, "")]),
    ("a Pod's readiness", [({}, CREATED), ({"p": "2026-01-02T00:00:00Z"}, "2026-01-02T00:00:00Z"), ({}, "")]),
    (
        "the earliest of two",
        [
            ({}, CREATED),
            ({"p": "2026-01-03T00:00:00Z", "q": "2026-01-02T00:00:00Z"}, "2026-01-02T00:00:00Z"),
            ({"p": "2026-01-04T00:00:00Z", "q": "2026-01-02T00:00:00Z"}, "2026-01-04T00:00:00Z"),
        ],
    ),
    ("a Pod that goes has no time", [({"p": "2026-01-02T00:00:00Z"}, CREATED), ({"p": None}, "")]),
    (
        "one that comes back has",
        [
            ({"p": "2026-01-02T00:00:00Z"}, CREATED),
            ({"p": None}, ""),
            ({"p": "2026-01-02T00:00:00Z"}, "2026-01-02T00:00:00Z"),
        ],
    ),
    ("an earlier time is nothing new", [({"p": "2026-01-02T00:00:00Z"}, CREATED), ({"p": CREATED}, "")]),
    ("other time zones", [({}, CREATED), ({"p": "2026-01-02T02:00:00.5+02:00"}, "2026-01-02T00:00:00Z")]),
    ("no time at all", [({}, CREATED), ({"p": ""}, ""), ({"p": "yesterday"}, "")]),
]


@pytest.mark.parametrize("looks", [case[1] for case in TIMES], ids=[case[0] for case in TIMES])
def test_trigger_times(looks: list[Look]) -> None:
    times = TriggerTimeTracker()
    for pods, told in looks:
        for name, since in pods.items():
            times.put(("x", name), None if since is None else pod(since=since))
        assert times.take(service(meta=BORN)) == told


def learnt(controller: Reconciler, *objects: tuple[Kind, Json]) -> Reconciler:
    for revision, (kind, obj) in enumerate(objects, 1):
        meta = obj["metadata"]
        controller.observe(Change(kind, (meta.get("namespace", ""), meta["name"]), obj, revision))
    return controller


def annotation(controller: Reconciler) -> list[str | None]:
    """What each write of a look says of its trigger, after which it is learnt."""
    found = []
    for action in controller.reconcile(Request(("x", "svc"), 0)).actions:
        meta = action.obj["metadata"]
        found.append((meta.get("annotations") or {}).get(TRIGGER))
        meta |= {"name": meta.get("name", "svc-1"), "resourceVersion": "9"}
        controller.observe(Change(action.kind, ("x", meta["name"]), action.obj, 100))
    return found


NODE_1 = {"metadata": {"name": "n1"}}


@pytest.mark.parametrize("made", [EndpointsController, EndpointSliceController])
def test_the_annotation_comes_and_goes(made: type[EndpointsController | EndpointSliceController]) -> None:
    controller = learnt(made(ServiceIndex()), (NODE, NODE_1), (SERVICE, service(meta=BORN)), (POD, pod()))
    assert annotation(controller) == [CREATED]
    assert annotation(controller) == []
    controller.observe(Change(POD, ("x", "p1"), pod(ready=False, since="2026-01-02T00:00:00Z"), 10))
    assert annotation(controller) == ["2026-01-02T00:00:00Z"]
    controller.observe(Change(POD, ("x", "p1"), None, 11))
    assert annotation(controller) == [None]


REFUSED = StatusError(422, "Invalid", "no", {"name": "svc-1"})
LABELS = {"kubernetes.io/service-name": "svc", "endpointslice.kubernetes.io/managed-by": CONTROLLER}
SLICE = {"metadata": {"name": "svc-1", "namespace": "x", "labels": LABELS}}
EXISTING = {"metadata": {"name": "svc", "namespace": "x"}}
UPDATING = "FailedToUpdateEndpointSlices: Error updating Endpoint Slices for Service x/svc: failed to"
FAILURES: list[tuple[type[Reconciler], list[tuple[Kind, Json]], Literal["create", "update"], str]] = [
    # controller, what there is, refused write, the Event
    (
        EndpointsController, [], "create",
        "Endpoints FailedToCreateEndpoint: Failed to create endpoint for service x/svc: no",
    ),
    (
        EndpointsController, [(ENDPOINTS, EXISTING)], "update",
        "Endpoints FailedToUpdateEndpoint: Failed to update endpoint x/svc: no",
    ),
    (
        EndpointSliceController, [(SERVICE, service())], "create",
        f"Service {UPDATING} create EndpointSlice for Service x/svc: no",
    ),
    (
        EndpointSliceController, [(SERVICE, service()), (ENDPOINT_SLICE, SLICE)], "update",
        f"Service {UPDATING} update svc-1 EndpointSlice for Service x/svc: no",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("made", "objects", "verb", "says"), FAILURES)
def test_refused_writes(
    made: type[EndpointsController | EndpointSliceController],
    objects: list[tuple[Kind, Json]],
    verb: Literal["create", "update"],
    says: str,
) -> None:
    action = Action(verb, *objects[-1] if objects else (ENDPOINTS, EXISTING))
    event = learnt(made(ServiceIndex()), *objects).failed(Request(("x", "svc"), 0), action, REFUSED)
    assert event
    assert (event.type, f"{event.kind.kind} {event.reason}: {event.message}") == ("Warning", says)


def test_of_services_that_are_gone_nothing_is_told() -> None:
    request, action = Request(("x", "svc"), 0), Action("create", ENDPOINT_SLICE, SLICE)
    assert EndpointSliceController(ServiceIndex()).failed(request, action, REFUSED) is None
    assert MirroringController(ServiceIndex()).failed(request, action, REFUSED) is None


def test_pods_on_unknown_nodes_are_told_of() -> None:
    controller = learnt(EndpointSliceController(ServiceIndex()), (SERVICE, service()), (POD, pod(1)), (POD, pod(2)))
    (event,) = controller.reconcile(Request(("x", "svc"), 0)).events
    skipped = ", ".join(f"skipping Pod p{n} for Service x/svc: Node n1 Not Found" for n in (1, 2))
    assert event.reason == "FailedToUpdateEndpointSlices"
    assert event.message == f"Error updating Endpoint Slices for Service x/svc: [{skipped}]"
    assert set(controller.observe(Change(NODE, ("", "n1"), NODE_1, 9))) == {("x", "svc")}
    assert controller.reconcile(Request(("x", "svc"), 0)).events == []


def test_a_slice_that_somebody_changed_is_mended() -> None:
    controller = learnt(EndpointSliceController(ServiceIndex()), (NODE, NODE_1), (SERVICE, service()), (POD, pod()))
    (created,) = controller.reconcile(Request(("x", "svc"), 0)).actions
    stored = {**created.obj, "metadata": {**created.obj["metadata"], "name": "svc-1"}}
    controller.observe(Change(ENDPOINT_SLICE, ("x", "svc-1"), stored, 100))
    assert controller.reconcile(Request(("x", "svc"), 0)).actions == []
    controller.observe(Change(ENDPOINT_SLICE, ("x", "svc-1"), {**stored, "endpoints": []}, 101))
    (action,) = controller.reconcile(Request(("x", "svc"), 0)).actions
    assert [endpoint["addresses"] for endpoint in action.obj["endpoints"]] == [["10.244.0.1"]]


def test_reserved_labels_of_a_service_stay_its_own() -> None:
    reserved = {
        "kubernetes.io/service-name": "bad",
        "endpointslice.kubernetes.io/managed-by": "bad",
        "service.kubernetes.io/headless": "bad",
    }
    svc = service(meta={"labels": {"team": "t", **reserved}})
    controller = learnt(EndpointSliceController(ServiceIndex()), (NODE, NODE_1), (SERVICE, svc), (POD, pod()))
    (action,) = controller.reconcile(Request(("x", "svc"), 0)).actions
    assert action.obj["metadata"]["labels"] == {
        "team": "t",
        "kubernetes.io/service-name": "svc",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    labelled = service(meta={"labels": {"service.kubernetes.io/headless": ""}})
    made = desired_endpoints(labelled, [pod()], None, "") or {}
    assert made["metadata"]["labels"] == {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}


def test_more_addresses_than_endpoints_can_hold() -> None:
    pods = [pod(number) for number in range(1200)]
    made = desired_endpoints(service(), pods, None, "") or {}
    made["metadata"]["resourceVersion"] = "1"
    assert made["metadata"]["annotations"] == {"endpoints.kubernetes.io/over-capacity": "truncated"}
    assert len(made["subsets"][0]["addresses"]) == 1000
    assert desired_endpoints(service(), pods, made, "later") is None, "the same again is no write"
    fewer = desired_endpoints(service(), pods[:900], made, "") or {}
    assert "annotations" not in fewer["metadata"]


@pytest.mark.parametrize(("size", "requeue_after_s"), [(101, 0.07), (100, None)])
def test_large_endpoints_are_written_in_batches(size: int, requeue_after_s: float | None) -> None:
    pods = [(POD, pod(number)) for number in range(size)]
    controller = learnt(EndpointsController(ServiceIndex()), (SERVICE, service()), *pods)
    (first,) = controller.reconcile(Request(("x", "svc"), 10.0)).actions
    first.obj["metadata"]["resourceVersion"] = "1"
    controller.observe(Change(ENDPOINTS, ("x", "svc"), first.obj, 1000))
    controller.observe(Change(POD, ("x", "p1"), pod(ready=False, since="2026-01-02T00:00:00Z"), 1001))
    early = controller.reconcile(Request(("x", "svc"), 10.03))
    assert (early.requeue_after_s and round(early.requeue_after_s, 3), len(early.actions)) == (
        requeue_after_s,
        0 if requeue_after_s else 1,
    )
    if requeue_after_s:
        (late,) = controller.reconcile(Request(("x", "svc"), 10.1)).actions
        assert late.obj["metadata"]["annotations"][TRIGGER] == "2026-01-02T00:00:00Z"
        assert controller.reconcile(Request(("x", "svc"), 9.0)).requeue_after_s is None, (
            "a clock that was put back stops nothing"
        )
