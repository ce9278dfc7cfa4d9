"""What a state counts for its objects is about what they take, and nothing when they are gone."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from kdns.cluster.memory import STATE_MAX_BYTES
from kdns.cluster.objects import EndpointSlice, Namespace, Node, Object, Pod, Service, ServiceImport
from kdns.cluster.state import State
from kdns.cluster.watch import RESOURCES

Json = dict[str, Any]


def meta(number: int, **fields: object) -> Json:
    return {"metadata": {"name": f"name-{number}", "namespace": f"ns-{number % 100}", **fields}}


def ip(number: int) -> str:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def service(number: int, **spec: object) -> Json:
    return meta(number) | {"spec": {"clusterIP": ip(number), "clusterIPs": [ip(number)], **spec}}


def endpoint(number: int, **fields: object) -> Json:
    target = {"kind": "Pod", "namespace": "ns", "name": f"name-{number}"}
    conditions = {"ready": True, "serving": True, "terminating": False}
    return {"addresses": [ip(number)], "conditions": conditions, "targetRef": target, **fields}


def endpoint_slice(number: int, endpoints: list[Json]) -> Json:
    labels = {"kubernetes.io/service-name": f"name-{number}"}
    return meta(number, labels=labels) | {"addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 80}]}


def fields_of(many: int, make: Callable[[int], object]) -> Callable[[int], list[object]]:
    return lambda number: [make(number * many + index) for index in range(many)]


PORTS = fields_of(5000, lambda each: {"port": each % 60_000, "name": f"p{each}"})
BARE_PORTS = fields_of(5000, lambda each: {"port": each % 60_000})
ADDRESSES = fields_of(5000, ip)
RANGES = fields_of(5000, lambda each: f"{ip(each)}/32")
INGRESS = fields_of(5000, lambda each: {"ip": ip(each)})
TAINTS = fields_of(5000, lambda each: {"key": f"{each}"})
USUAL = fields_of(100, lambda each: endpoint(each, nodeName=f"n{each % 100}"))
OWN_ZONES = fields_of(1000, lambda each: endpoint(each, zone=f"{each}"))
LONG_ZONES = fields_of(1000, lambda each: endpoint(each, zone=f"{each}" * 99))
HOST_NAMES = fields_of(1000, lambda each: endpoint(each, hostname=f"{each}"))


def slices(endpoints: Callable[[int], list[Any]]) -> Callable[[int], Json]:
    return lambda number: endpoint_slice(number, endpoints(number))


def pod(number: int, **labels: str) -> Json:
    status = {"phase": "Running", "podIP": ip(number), "podIPs": [{"ip": ip(number)}]}
    return meta(number, labels={"app": f"a{number % 9}"} | labels) | {"status": status}


def node(number: int, **spec: object) -> Json:
    addresses = [{"type": "InternalIP", "address": ip(number)}]
    return meta(number) | {"spec": {"podCIDR": f"{ip(256 * number)}/24"} | spec, "status": {"addresses": addresses}}


ROWS: dict[str, tuple[type[Object], int, Callable[[int], Json]]] = {
    "Services": (Service, 2000, lambda n: service(n, ports=[{"name": "http", "port": 80, "protocol": "TCP"}])),
    "ports": (Service, 5, lambda n: service(n, ports=PORTS(n))),
    "bare ports": (Service, 5, lambda n: service(n, ports=BARE_PORTS(n))),
    "external IPs": (Service, 5, lambda n: service(n, externalIPs=ADDRESSES(n))),
    "source ranges": (Service, 5, lambda n: service(n, loadBalancerSourceRanges=RANGES(n))),
    "ingress": (Service, 5, lambda n: meta(n) | {"status": {"loadBalancer": {"ingress": INGRESS(n)}}}),
    "names": (Service, 5, lambda n: service(n, externalName=f"{n}" * 100_000)),
    "Pods": (Pod, 2000, pod),
    "labels": (Pod, 5, lambda n: pod(n, **{f"k{n}-{index}": "" for index in range(5000)})),
    "Pod IPs": (Pod, 5, lambda n: meta(n) | {"status": {"podIPs": INGRESS(n)}}),
    "slices": (EndpointSlice, 200, slices(USUAL)),
    "small slices": (EndpointSlice, 2000, slices(lambda n: [endpoint(n, nodeName="n")])),
    "own zones": (EndpointSlice, 5, slices(OWN_ZONES)),
    "long zones": (EndpointSlice, 5, slices(LONG_ZONES)),
    "host names": (EndpointSlice, 5, slices(HOST_NAMES)),
    "many addresses": (EndpointSlice, 5, slices(lambda n: [{"addresses": ADDRESSES(n)}])),
    "slice ports": (EndpointSlice, 5, lambda n: meta(n) | {"ports": BARE_PORTS(n)}),
    "Nodes": (Node, 2000, node),
    "taints": (Node, 5, lambda n: node(n, taints=TAINTS(n))),
    "Namespaces": (Namespace, 2000, meta),
    "imports": (ServiceImport, 5, lambda n: meta(n) | {"spec": {"ips": ADDRESSES(n)}}),
}


@pytest.mark.parametrize("name", ROWS)
def test_objects_count_what_they_take(name: str) -> None:
    kind, many, make = ROWS[name]
    bodies = [json.dumps(make(number)).encode() for number in range(many)]
    state, decode = State(), RESOURCES[kind].decode
    tracemalloc.start()
    try:
        for body in bodies:
            state.upsert(decode(body))  # type: ignore[arg-type] # bytes are as good as Raw
        taken_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.4 < state.memory_bytes / taken_bytes < 2.5
    assert len(bodies) == len(state.objects(kind))
    for number in range(many):  # other versions, and then none
        state.upsert(decode(json.dumps(make(number) | meta(number)).replace("10.", "11.").encode()))  # type: ignore[arg-type] # see above
    for key in list(state.objects(kind)):
        state.delete(kind, key)
    assert state.memory_bytes == 0


@pytest.mark.parametrize(("name", "count"), [("Services", 250_000), ("Pods", 250_000), ("slices", 10_000)])
def test_large_clusters_fit(name: str, count: int) -> None:
    kind, many, make = ROWS[name]
    state = State()
    for number in range(many):
        state.upsert(RESOURCES[kind].decode(json.dumps(make(number)).encode()))  # type: ignore[arg-type] # see above
    assert state.memory_bytes / many * count < STATE_MAX_BYTES
