"""Every change of a Service's type, both ways, by a patch and by `kubectl apply` of another manifest.

What the server chose is kept while the new type needs it, cleared when it does not, and chosen where it lacks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from expecting import differs
from kdns_process import Running, kdns_up

Json = dict[str, Any]
Spec = dict[str, Any]
PORTS = [{"name": "http", "port": 80}]
TYPES: dict[str, Spec] = {
    "ClusterIP": {"type": "ClusterIP"},
    "Headless": {"type": "ClusterIP", "clusterIP": "None"},
    "NodePort": {"type": "NodePort"},
    "LoadBalancer": {"type": "LoadBalancer"},
    "Local": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"},
    "ExternalName": {"type": "ExternalName", "externalName": "db.example.com"},
}
"""What people write for a type, beside ports, selector and families; Local is a load balancer with a health check."""

SAME = "="
IPV4, IPV6, NODE_PORT = r"~10\.96\.\d+\.\d+", "~fd00:10:96::.+", r"~3[0-2]\d\d\d"
KEPT: Spec = dict.fromkeys(("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "selector"), SAME)
CHOSEN: Spec = {"clusterIP": IPV4, "clusterIPs": [IPV4], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}
NO_ADDRESS: Spec = dict.fromkeys(("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"))
INSIDE: Spec = dict.fromkeys(("externalTrafficPolicy", "allocateLoadBalancerNodePorts", "healthCheckNodePort"))
OUTSIDE: Spec = {**INSIDE, "externalTrafficPolicy": "Cluster"}
BALANCED: Spec = {**OUTSIDE, "allocateLoadBalancerNodePorts": True}
CHECKED: Spec = {**BALANCED, "externalTrafficPolicy": "Local", "healthCheckNodePort": NODE_PORT}
NO_NODE_PORT: Spec = {"ports": [{"nodePort": None}]}
SAME_NODE_PORT: Spec = {"ports": [{"nodePort": SAME}]}
NEW_NODE_PORT: Spec = {"ports": [{"nodePort": NODE_PORT}]}
STAYS_HEADLESS: Spec = {"clusterIP": "None", "clusterIPs": ["None"], **INSIDE, **NO_NODE_PORT}
ONCE_SET = 'spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set'
NO_VIP = "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for {} services"

CHANGES: dict[tuple[str, str], Spec | str] = {
    ("ClusterIP", "Headless"): ONCE_SET,
    ("ClusterIP", "NodePort"): {**KEPT, **OUTSIDE, **NEW_NODE_PORT},
    ("ClusterIP", "LoadBalancer"): {**KEPT, **BALANCED, **NEW_NODE_PORT},
    ("ClusterIP", "Local"): {**KEPT, **CHECKED, **NEW_NODE_PORT},
    ("ClusterIP", "ExternalName"): {**NO_ADDRESS, **INSIDE, **NO_NODE_PORT},
    ("Headless", "ClusterIP"): STAYS_HEADLESS,
    ("Headless", "NodePort"): NO_VIP.format("NodePort"),
    ("Headless", "LoadBalancer"): NO_VIP.format("LoadBalancer"),
    ("Headless", "Local"): NO_VIP.format("LoadBalancer"),
    ("Headless", "ExternalName"): {**NO_ADDRESS, **INSIDE, **NO_NODE_PORT},
    ("NodePort", "ClusterIP"): {**KEPT, **INSIDE, **NO_NODE_PORT},
    ("NodePort", "Headless"): ONCE_SET,
    ("NodePort", "LoadBalancer"): {**KEPT, **BALANCED, **SAME_NODE_PORT},
    ("NodePort", "Local"): {**KEPT, **CHECKED, **SAME_NODE_PORT},
    ("NodePort", "ExternalName"): {**NO_ADDRESS, **INSIDE, **NO_NODE_PORT},
    ("LoadBalancer", "ClusterIP"): {**KEPT, **INSIDE, **NO_NODE_PORT},
    ("LoadBalancer", "Headless"): ONCE_SET,
    ("LoadBalancer", "NodePort"): {**KEPT, **OUTSIDE, **SAME_NODE_PORT},
    ("LoadBalancer", "Local"): {**KEPT, **CHECKED, **SAME_NODE_PORT},
    ("LoadBalancer", "ExternalName"): {**NO_ADDRESS, **INSIDE, **NO_NODE_PORT},
    ("Local", "ClusterIP"): {**KEPT, **INSIDE, **NO_NODE_PORT},
    ("Local", "Headless"): ONCE_SET,
    ("Local", "NodePort"): {**KEPT, **OUTSIDE, "externalTrafficPolicy": "Local", **SAME_NODE_PORT},
    ("Local", "LoadBalancer"): {**KEPT, **BALANCED, "externalTrafficPolicy": "Local", "healthCheckNodePort": SAME},
    ("Local", "ExternalName"): {**NO_ADDRESS, **INSIDE, **NO_NODE_PORT},
    ("ExternalName", "ClusterIP"): {**CHOSEN, **INSIDE, **NO_NODE_PORT, "internalTrafficPolicy": "Cluster"},
    ("ExternalName", "Headless"): {**STAYS_HEADLESS, "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"},
    ("ExternalName", "NodePort"): {**CHOSEN, **OUTSIDE, **NEW_NODE_PORT},
    ("ExternalName", "LoadBalancer"): {**CHOSEN, **BALANCED, **NEW_NODE_PORT},
    ("ExternalName", "Local"): {**CHOSEN, **CHECKED, **NEW_NODE_PORT},
}
"""(from, to) → the spec behind the change, = for a value as it was; or what the refusal says."""
BY_APPLY: dict[tuple[str, str], Spec] = {
    ("Local", "NodePort"): {**KEPT, **OUTSIDE, **SAME_NODE_PORT},
    ("Local", "LoadBalancer"): {**KEPT, **BALANCED, **SAME_NODE_PORT},
}
"""Where a manifest, which says everything, ends elsewhere than a patch: the policy goes back to its default."""

INDECISIVE: list[tuple[str, Spec, str]] = [
    ("NodePort", {"type": "ClusterIP", "ports": [{**PORTS[0], "nodePort": 30999}]},
     "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"),
    ("LoadBalancer", {"type": "NodePort", "allocateLoadBalancerNodePorts": False},
     "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'"),
    ("LoadBalancer", {"type": "ClusterIP", "loadBalancerClass": "example.com/other"},
     "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"),
    ("LoadBalancer", {"type": "ClusterIP", "externalTrafficPolicy": "Local"},
     'spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services'),
    ("LoadBalancer", {"type": "ClusterIP", "loadBalancerSourceRanges": ["192.0.2.0/24"]},
     "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'"),
    ("Local", {"type": "NodePort", "healthCheckNodePort": 30998},
     "spec.healthCheckNodePort: Invalid value: 30998: may only be set when `type` is 'LoadBalancer' and"),
    ("ClusterIP", {"type": "ExternalName", "externalName": "a.example", "ipFamilies": ["IPv6", "IPv4"]},
     "spec.ipFamilies: Forbidden: may not be set for ExternalName services"),
    ("ClusterIP", {"type": "ExternalName"}, "spec.externalName: Required value"),
    ("ClusterIP", {"type": "Balanced"},
     'spec.type: Unsupported value: "Balanced": supported values: "ClusterIP", "ExternalName", "LoadBalancer", '),
    ("ExternalName", {"type": "ClusterIP", "ports": None}, "spec.ports: Required value"),
    ("ExternalName", {"type": "ClusterIP", "clusterIP": "10.97.0.1"}, "failed to allocate IP 10.97.0.1"),
    ("Headless", {"clusterIP": "10.96.0.99", "clusterIPs": ["10.96.0.99"]}, "may not change once set"),
]  # fmt: skip
"""(from, patch, what the refusal says): values that the new type cannot have are not cleared when they are sent."""


WAYS = ("patch", "apply")


def object_name(old: str, new: str) -> str:
    return f"{old}-{new}".lower()


def manifest(namespace: str, name: str, kind: str, *, dual: bool) -> Json:
    policy = {"ipFamilyPolicy": "PreferDualStack"} if dual else {}
    spec = {**TYPES[kind], **policy, "selector": {"app": "a"}, "ports": PORTS}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name}, "spec": spec}


def changing(namespace: str, old: str, new: str, kind: str) -> Json:
    """The Service that changes from `old` to `new`, at one of both."""
    dual = not {old, new} & {"ExternalName", "Headless"}
    return manifest(namespace, object_name(old, new), kind, dual=dual)


def objects(items: list[Json]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def read(cluster: Running, namespace: str) -> dict[str, Json]:
    """The Services of a namespace by name, without the price of kubectl."""
    listed = cluster.read(f"/api/v1/namespaces/{namespace}/services")
    return {item["metadata"]["name"]: item for item in listed["items"]}


def patched(cluster: Running, namespace: str, name: str, spec: Spec) -> str:
    """What a patch as that of `kubectl patch --type=merge` is refused with; "" if it is taken."""
    path = f"/api/v1/namespaces/{namespace}/services/{name}"
    answer = cluster.send("PATCH", path, {"spec": spec}, "application/merge-patch+json")
    return "" if answer["kind"] == "Service" else str(answer["message"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A dual-stack `kdns up` with addresses for load balancers, and a namespace for each way with what is changed."""
    ranges = ("--service-cidr", "10.96.0.0/16,fd00:10:96::/112", "--lb-pool", "192.0.2.0/24")
    spaces = ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (*WAYS, "indecisive"))
    changed = (changing(way, old, new, old) for way in WAYS for old, new in CHANGES)
    rows = enumerate(old for old, _, _ in INDECISIVE)
    undecided = (manifest("indecisive", f"row-{number}", old, dual=old == "ClusterIP") for number, old in rows)
    with kdns_up(tmp_path_factory.mktemp("types"), *ranges) as running:
        running.kubectl("apply", "-f", "-", stdin=objects([*spaces, *changed, *undecided]))
        yield running


@pytest.fixture(scope="module")
def applied(cluster: Running) -> tuple[dict[str, Json], str, dict[str, Json]]:
    """All changes by one `kubectl apply`: the Services before, what it said, and the Services after.

    Those that give addresses and node ports back come last: nobody else gets them.
    """
    before = read(cluster, "apply")
    changes = sorted(CHANGES, key=lambda pair: pair[1] == "ExternalName")
    out = cluster.kubectl(
        "apply", "-f", "-", stdin=objects([changing("apply", old, new, new) for old, new in changes]), check=False
    )
    return before, out, read(cluster, "apply")


def as_before(wanted: Any, before: Any) -> Any:
    """The expectation with = replaced by what was there."""
    if wanted == SAME:
        return before
    if isinstance(wanted, dict):
        return {key: as_before(value, (before or {}).get(key)) for key, value in wanted.items()}
    if isinstance(wanted, list) and isinstance(before, list):
        return [as_before(*pair) for pair in zip(wanted, before, strict=True)]
    return wanted


def test_every_pair_is_here() -> None:
    assert CHANGES.keys() == {(a, b) for a in TYPES for b in TYPES if a != b}


@pytest.mark.parametrize(("old", "new"), CHANGES, ids=["-".join(pair) for pair in CHANGES])
def test_a_change_of_type_by_patch(cluster: Running, old: str, new: str) -> None:
    before = read(cluster, "patch")[object_name(old, new)]
    out = patched(cluster, "patch", object_name(old, new), TYPES[new])
    after = read(cluster, "patch")[object_name(old, new)]
    check(CHANGES[old, new], before, out, after)
    check_address_is_free(cluster, before, after)


@pytest.mark.parametrize(("old", "new"), CHANGES, ids=["-".join(pair) for pair in CHANGES])
def test_a_change_of_type_by_apply(
    cluster: Running, applied: tuple[dict[str, Json], str, dict[str, Json]], old: str, new: str
) -> None:
    all_before, out, all_after = applied
    before, after = all_before[object_name(old, new)], all_after[object_name(old, new)]
    check(BY_APPLY.get((old, new), CHANGES[old, new]), before, out, after)
    check_address_is_free(cluster, before, after)


def check(wanted: Spec | str, before: Json, out: str, after: Json) -> None:
    """A Service is as wanted, or unchanged and its refusal is among what was said."""
    name = before["metadata"]["name"]
    if isinstance(wanted, str):
        assert f'Service "{name}" is invalid: {wanted}' in out
        assert after["spec"] == before["spec"], "a refused change changes nothing"
        return
    assert not differs({"spec": as_before(wanted, before["spec"])}, after, name), out
    if after["spec"]["type"] != "LoadBalancer":
        assert after["status"] == {"loadBalancer": {}}, "an address of a load balancer goes with it"


def check_address_is_free(cluster: Running, before: Json, after: Json) -> None:
    """Another Service may have the address and node ports of one that became an ExternalName."""
    address, ports = before["spec"].get("clusterIP", "None"), before["spec"]["ports"]
    if after["spec"]["type"] != "ExternalName" or address == "None":
        return
    kind = "NodePort" if "nodePort" in ports[0] else "ClusterIP"
    taker = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"{before['metadata']['name']}-2"}}
    taker["spec"] = {"type": kind, "clusterIP": address, "ports": ports}
    created = cluster.send("POST", f"/api/v1/namespaces/{before['metadata']['namespace']}/services", taker)
    assert created["kind"] == "Service", created


@pytest.mark.parametrize("number", range(len(INDECISIVE)))
def test_values_that_the_new_type_cannot_have(cluster: Running, number: int) -> None:
    _, patch, says = INDECISIVE[number]
    name = f"row-{number}"
    before = read(cluster, "indecisive")[name]["spec"]
    assert says in patched(cluster, "indecisive", name, patch)
    assert read(cluster, "indecisive")[name]["spec"] == before
