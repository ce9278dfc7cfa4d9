"""Endpoints and slices of one Service from a table of Pods; then mirrors of hand-written Endpoints.

Addresses: 10.244.0.N are Pods, node n1 is in zone z1, node gone does not exist.
"""

from copy import deepcopy

import pytest
from desired_endpoints import desired_endpoints, pod, service

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, NODE, POD, SERVICE, Json, Kind
from kdns.controlplane.controllers.reconciler import Change
from kdns.controlplane.endpoints.desired_endpoints import DesiredEndpoints, StoredEndpoints
from kdns.controlplane.endpoints.endpoints_controller import EndpointsController
from kdns.controlplane.endpoints.endpointslice_controller import EndpointSliceController, SlicePlan, pack, plan_slices
from kdns.controlplane.endpoints.mirroring_controller import (
    MirroringController,
    is_mirrored,
    mirrored_endpoints,
    plan_mirror,
    unmirrored,
)
from kdns.controlplane.endpoints.service_index import ServiceIndex

NODES = {"n1": {"metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z1"}}}}
TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MOST = "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset"


def planned(svc: Json, pods: list[Json], trigger: str = "") -> SlicePlan:
    """The slices of a Service that has none yet."""
    endpoints = DesiredEndpoints(svc, NODES)
    for number, one in enumerate(pods):
        endpoints.put(("x", str(number)), one)
    return plan_slices(svc, endpoints, [], trigger)


def test_a_service_that_is_being_deleted_gets_no_slice() -> None:
    going = service()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert [len(planned(svc, [pod(1)]).actions) for svc in (service(), going)] == [1, 0]


SIDECAR = [{"name": "s", "restartPolicy": "Always", "ports": [{"name": "web", "containerPort": 9090}]}]
CASES = [
    # name, Service spec, Pod, Endpoints (ready, not ready, ports), slice (addresses, ready, serving, terminating)
    ("ready", {}, pod(1), ([1], [], [8080]), ([1], True, True, False)),
    ("not ready", {}, pod(1, ready=False), ([], [1], [8080]), ([1], False, False, False)),
    (
        "published",
        {"publishNotReadyAddresses": True},
        pod(1, ready=False),
        ([1], [], [8080]),
        ([1], True, False, False),
    ),
    ("going", {}, pod(1, going=True), ([], [], []), ([1], False, True, True)),
    ("finished", {}, pod(1, phase="Succeeded"), ([], [], []), None),
    ("on no node", {}, pod(1, nodeName=""), ([1], [], [8080]), None),
    (
        "on no node, published",
        {"publishNotReadyAddresses": True},
        pod(1, nodeName=""),
        ([1], [], [8080]),
        ([1], True, True, False),
    ),
    ("node unknown", {}, pod(1, nodeName="gone"), ([1], [], [8080]), None),
    (
        "sidecar port",
        {},
        pod(1, containers=[{"name": "c"}], initContainers=SIDECAR),
        ([1], [], [9090]),
        ([1], True, True, False),
    ),
    ("number", {"ports": [{"port": 80, "targetPort": 81}]}, pod(1), ([1], [], [81]), ([1], True, True, False)),
    ("headless without ports", {"ports": [], "clusterIP": "None"}, pod(1), ([1], [], []), ([1], True, True, False)),
    ("other family", {"ipFamilies": ["IPv6"]}, pod(1), ([], [], []), None),
]


@pytest.mark.parametrize(
    ("spec", "one", "endpoints", "in_slice"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_one_pod(
    spec: Json,
    one: Json,
    endpoints: tuple[list[int], list[int], list[int]],
    in_slice: tuple[list[int], bool, bool, bool] | None,
) -> None:
    svc = service(**spec)
    made = desired_endpoints(svc, [one], None, "now") or {}
    subsets = made.get("subsets") or [{}]
    got = [
        [int(row["ip"].rpartition(".")[2]) for row in subsets[0].get(name) or []]
        for name in ("addresses", "notReadyAddresses")
    ]
    assert (*got, [port["port"] for port in subsets[0].get("ports") or []]) == endpoints
    plan = planned(svc, [one], "now")
    assert len(plan.create) == 1
    found = [
        ([int(address.rpartition(".")[2]) for address in endpoint["addresses"]], *endpoint["conditions"].values())
        for endpoint in plan.create[0]["endpoints"]
    ]
    assert found == ([in_slice] if in_slice else [])
    assert plan.create[0]["metadata"]["annotations"] == {TRIGGER: "now"}


def test_hostnames_need_the_services_name_as_subdomain() -> None:
    pods = [pod(1, hostname="a", subdomain="svc"), pod(2, hostname="b", subdomain="other")]
    made = desired_endpoints(service(clusterIP="None"), pods, None, "") or {}
    assert [row.get("hostname") for row in made["subsets"][0]["addresses"]] == ["a", None]
    assert made["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    slices = planned(service(clusterIP="None"), pods).create
    assert [endpoint.get("hostname") for endpoint in slices[0]["endpoints"]] == ["a", None]
    assert [endpoint["zone"] for endpoint in slices[0]["endpoints"]] == ["z1", "z1"]


@pytest.mark.parametrize(
    ("distribution", "hints"),
    [
        (None, None),
        ("PreferClose", {"forZones": [{"name": "z1"}]}),
        ("PreferSameZone", {"forZones": [{"name": "z1"}]}),
        ("PreferSameNode", {"forZones": [{"name": "z1"}], "forNodes": [{"name": "n1"}]}),
    ],
)
def test_hints(distribution: str | None, hints: Json | None) -> None:
    made = planned(service(trafficDistribution=distribution), [pod(1), pod(2, ready=False)]).create
    assert [endpoint.get("hints") for endpoint in made[0]["endpoints"]] == [hints, None]


@pytest.mark.parametrize(
    ("existing", "desired", "held", "created"),
    [
        ({}, "12345", {}, ["1234", "5"]),
        ({"a": "1"}, "1", {"a": "1"}, []),
        ({"a": "1"}, "2", {"a": ""}, ["2"]),
        ({"a": "123"}, "1234", {"a": "1234"}, []),
        ({"a": "123"}, "12345", {"a": "123"}, ["45"]),
        ({"a": "1"}, "12345", {"a": "1"}, ["2345"]),
        ({"a": "1", "b": "23"}, "1234", {"a": "1", "b": "234"}, []),
        ({"a": "12", "b": "345"}, "1234567", {"a": "1267", "b": "345"}, []),
        ({"a": "12", "b": "345"}, "13456", {"a": "16", "b": "345"}, []),
        ({"a": "12", "b": "345"}, "134678", {"a": "18", "b": "3467"}, []),
    ],
    ids=str,
)
def test_slices_of_four_endpoints_are_packed(
    existing: dict[str, str], desired: str, held: dict[str, str], created: list[str]
) -> None:
    """Slices that are written anyway are filled first, then the one that has the least room for all that is left."""
    stored = [
        StoredEndpoints(name, tuple(each), [{"addresses": [one]} for one in each]) for name, each in existing.items()
    ]
    packing = pack(stored, {one: {"addresses": [one]} for one in desired}, (), 4)
    names = [
        ["".join(one["addresses"][0] for one in list_) for list_ in lists]
        for lists in (packing.endpoints.values(), packing.created)
    ]
    assert (dict(zip(packing.endpoints, names[0], strict=True)), names[1]) == (held, created)


def test_endpoints_that_compared_equal_are_the_same_objects_afterwards() -> None:
    """The next comparison of an unchanged slice looks into none of its endpoints."""
    stored, desired = StoredEndpoints("a", ("1",), [{"addresses": ["1"]}]), {"1": {"addresses": ["1"]}}
    pack([stored], desired, (), 4)
    assert stored.endpoints[0] is desired["1"]


def test_events_concern_only_the_services_that_select() -> None:
    index = ServiceIndex()
    for name, selector in (("a", {"app": "a"}), ("ab", {"app": "a", "tier": "b"}), ("all", {}), ("none", None)):
        index.apply(
            SERVICE, ("x", name), {"metadata": {"name": name, "namespace": "x"}, "spec": {"selector": selector}}
        )
    other = {"metadata": {"name": "a", "namespace": "y"}, "spec": {"selector": {"app": "a"}}}
    index.apply(SERVICE, ("y", "a"), other)

    def concerned(kind: Kind, key: Key, obj: Json | None) -> list[str]:
        found = index.apply(kind, key, obj)
        assert all(pod == ("x", "p1") and service[0] == "x" for service, pod in found)
        return sorted(name for (_, name), _ in found)

    assert concerned(POD, ("x", "p1"), pod(1)) == ["a", "all"]
    moved = pod(1)
    moved["metadata"]["labels"] = {"app": "a", "tier": "b"}
    assert concerned(POD, ("x", "p1"), moved) == ["a", "ab", "all"]
    assert concerned(NODE, ("", "n1"), NODES["n1"]) == ["a", "ab", "all"]
    assert concerned(NODE, ("", "n1"), {**NODES["n1"], "status": {}}) == []
    elsewhere = {"metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z2"}}}
    assert concerned(NODE, ("", "n1"), elsewhere) == ["a", "ab", "all"]
    assert concerned(POD, ("x", "p1"), None) == ["a", "ab", "all"]
    assert index.pods_of(other) == []


def test_a_service_without_a_selector_is_work_only_with_what_belongs_to_it() -> None:
    index, key, plain = ServiceIndex(), ("x", "svc"), service(selector=None)
    assert index.apply(SERVICE, key, plain) == set(), "a new one"
    assert index.apply(SERVICE, key, service()) == {(key, None)}
    assert index.apply(SERVICE, key, plain) == {(key, None)}, "its slices are to be deleted"
    labels = {"kubernetes.io/service-name": "svc", "endpointslice.kubernetes.io/managed-by": "m"}
    for kind, meta in ((ENDPOINTS, {}), (ENDPOINT_SLICE, {"labels": labels})):
        obj: Json = {"metadata": {"name": "svc", "namespace": "x", **meta}}
        index.apply(kind, key, obj)
        assert index.apply(SERVICE, key, plain) == {(key, None)}, kind.kind
        index.apply(kind, key, None)
    assert index.apply(SERVICE, key, plain) == set()
    assert index.apply(SERVICE, key, None) == {(key, None)}


def test_one_index_learns_an_event_once() -> None:
    index = ServiceIndex()
    controllers = (EndpointsController(index), EndpointSliceController(index), MirroringController(index))
    for controller in controllers:
        assert set(controller.observe(Change(SERVICE, ("x", "svc"), service(), 7))) == {("x", "svc")}
    names = ["endpoint-controller", "endpointslice-controller", "endpointslicemirroring-controller"]
    assert [controller.name for controller in controllers] == names


def endpoints(**meta: object) -> Json:
    subset = {
        "addresses": [{"ip": "192.0.2.1", "hostname": "h"}, {"ip": "2001:db8::1"}],
        "notReadyAddresses": [{"ip": "192.0.2.2"}],
        "ports": [{"port": 5432, "protocol": "TCP"}],
    }
    return {"metadata": {"name": "db", "namespace": "x", "uid": "e", **meta}, "subsets": [subset]}


def mirrored(obj: Json, existing: list[Json]) -> SlicePlan:
    return plan_mirror(obj, mirrored_endpoints(obj), existing)


def test_mirror_and_back() -> None:
    obj = endpoints(labels={"a": "b"}, annotations={"n": "1", TRIGGER: "then", LAST_APPLIED: "{}"})
    plan = mirrored(obj, [])
    by_family = {each["addressType"]: each for each in plan.create}
    assert by_family["IPv4"]["endpoints"] == [
        {"addresses": ["192.0.2.1"], "conditions": {"ready": True}, "hostname": "h"},
        {"addresses": ["192.0.2.2"], "conditions": {"ready": False}},
    ]
    assert by_family["IPv6"]["ports"] == [{"name": "", "port": 5432, "protocol": "TCP"}]
    assert by_family["IPv4"]["metadata"]["labels"]["a"] == "b"
    assert by_family["IPv4"]["metadata"]["annotations"] == {"n": "1"}
    for number, each in enumerate(plan.create):
        each["metadata"]["name"] = f"db-{number}"
    again = mirrored(obj, plan.create)
    assert again.create == again.update == again.delete == []
    relabelled = mirrored(endpoints(labels={"a": "c"}, annotations={"n": "1"}), plan.create)
    assert [each["metadata"]["labels"]["a"] for each in relabelled.update] == ["c", "c"]
    moved = deepcopy(obj)
    moved["subsets"][0]["ports"] = [{"port": 5433, "protocol": "TCP"}]
    reused = mirrored(moved, plan.create)
    assert (reused.create, reused.delete) == ([], [])
    assert {each["metadata"]["name"]: each["ports"][0]["port"] for each in reused.update} == {
        "db-0": 5433,
        "db-1": 5433,
    }
    empty = mirrored({**endpoints(), "subsets": []}, plan.create)
    assert empty.delete == plan.create


def subset(ready: str, not_ready: str = "", *ports: int) -> Json:
    """Addresses are written `last.uid@hostname`, the last two optional."""
    rows: dict[str, list[Json]] = {"addresses": [], "notReadyAddresses": []}
    for field, texts in zip(rows, (ready, not_ready), strict=True):
        for text in texts.split():
            at, _, hostname = text.partition("@")
            last, _, uid = at.partition(".")
            ref = {"targetRef": {"kind": "Pod", "name": uid, "uid": uid}} if uid else {}
            rows[field].append({"ip": f"192.0.2.{last}", **ref, **({"hostname": hostname} if hostname else {})})
    return {**rows, "ports": [{"name": f"p{port}", "port": port} for port in ports]}


REPACKED = [
    # what, subsets, slices as (ports, endpoints as last octet, + or - for ready, hostname)
    ("one address in two subsets", [subset("1", "", 80), subset("1", "", 81)], [([80, 81], ["1+"])]),
    (
        "other addresses, other slices",
        [subset("1 2", "", 80), subset("1", "", 81)],
        [([80], ["1+", "2+"]), ([81], ["1+"])],
    ),
    ("ready and not ready at one port", [subset("1", "2", 80), subset("2", "1", 80)], [([80], ["1-", "2-"])]),
    (
        "ready at one port, not ready at another",
        [subset("1", "", 80), subset("", "1", 81)],
        [([80], ["1+"]), ([81], ["1-"])],
    ),
    ("the first hostname", [subset("1@a", "", 80), subset("1@b", "", 81)], [([80, 81], ["1+a"])]),
    ("the first hostname at one port", [subset("1@a 2", "", 80), subset("1@b", "", 80)], [([80], ["1+a", "2+"])]),
    ("two Pods at one address", [subset("1.x 1.y", "", 80)], [([80], ["1+", "1+"])]),
    (
        "each Pod with its ports",
        [subset("1.x", "", 80), subset("1.y", "", 81), subset("1.y", "", 82)],
        [([80], ["1+"]), ([81, 82], ["1+"])],
    ),
    ("no ports", [subset("1"), subset("2", "1")], [([], ["2+", "1-"])]),
    ("no ports beside ports", [subset("1"), subset("1", "", 80)], [([80], ["1+"])]),
]


@pytest.mark.parametrize(("subsets", "slices"), [case[1:] for case in REPACKED], ids=[case[0] for case in REPACKED])
def test_subsets_are_repacked(subsets: list[Json], slices: list[tuple[list[int], list[str]]]) -> None:
    made = mirrored({**endpoints(), "subsets": subsets}, []).create
    found = [
        (
            [port["port"] for port in each["ports"]],
            [
                f"{endpoint['addresses'][0].rpartition('.')[2]}{'+' if endpoint['conditions']['ready'] else '-'}"
                f"{endpoint.get('hostname', '')}"
                for endpoint in each["endpoints"]
            ],
        )
        for each in made
    ]
    assert found == slices


@pytest.mark.parametrize(
    ("addresses", "told", "held"),
    [
        (["192.0.2.1", "nonsense"], ["Skipped 1 invalid IP addresses when mirroring to EndpointSlices"], 1),
        ([f"10.0.{n // 250}.{n % 250}" for n in range(1003)], [f"{MOST}. 3 addresses were skipped"], 1000),
        (["192.0.2.1"] * 2, [], 1),
    ],
    ids=["invalid", "too many", "twice the same"],
)
def test_addresses_that_are_not_mirrored(addresses: list[str], told: list[str], held: int) -> None:
    obj = {**endpoints(), "subsets": [{"addresses": [{"ip": ip} for ip in addresses], "ports": [{"port": 1}]}]}
    assert [said for _, said in unmirrored(mirrored_endpoints(obj))] == told
    assert sum(len(each["endpoints"]) for each in mirrored(obj, []).create) == held


@pytest.mark.parametrize(
    ("obj", "svc", "expected"),
    [
        (endpoints(), service(selector=None), True),
        (endpoints(), service(), False),
        (endpoints(), None, False),
        (endpoints(labels={"endpointslice.kubernetes.io/skip-mirror": "true"}), service(selector=None), False),
        (endpoints(annotations={"control-plane.alpha.kubernetes.io/leader": "x"}), service(selector=None), False),
    ],
)
def test_what_is_mirrored(obj: Json, svc: Json | None, expected: bool) -> None:
    assert is_mirrored(obj, svc) is expected
