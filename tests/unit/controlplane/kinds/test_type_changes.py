"""Every change of a Service's type, both ways, by a patch as `kubectl patch --type=merge` sends it.

What the server chose is kept while the new type needs it, cleared when it does not, and chosen where it lacks.
"""

from ipaddress import ip_network
from typing import Any

import pytest
from expecting import differs
from object_api import Api, named, refused

from kdns.controlplane.apimachinery.kinds import SERVICE, Json
from kdns.controlplane.cluster_config import ClusterConfig

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


def created(old: str, *, dual: bool) -> tuple[Api, Json]:
    """A dual-stack cluster with Service `web` of a type, and the Service."""
    networks = (ip_network("10.96.0.0/16"), ip_network("fd00:10:96::/112"))
    api = Api(config=ClusterConfig(service_cidrs=networks))
    policy = {"ipFamilyPolicy": "PreferDualStack"} if dual else {}
    spec = {**TYPES[old], **policy, "selector": {"app": "a"}, "ports": PORTS}
    return api, api.create(SERVICE, {**named("web"), "spec": spec})


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
def test_a_change_of_type(old: str, new: str) -> None:
    api, before = created(old, dual=not {old, new} & {"ExternalName", "Headless"})
    wanted, patch = CHANGES[old, new], {"spec": TYPES[new]}
    if isinstance(wanted, str):
        refused(422, f'Service "web" is invalid: {wanted}', api.patch, SERVICE, "web", patch)
        assert api.get(SERVICE, "web") == before, "a refused change changes nothing"
        return
    after = api.patch(SERVICE, "web", patch)
    assert not differs({"spec": as_before(wanted, before["spec"])}, after)
    address, ports = before["spec"].get("clusterIP", "None"), before["spec"]["ports"]
    if new == "ExternalName" and address != "None":  # another Service may have its address and node ports
        kind = "NodePort" if "nodePort" in ports[0] else "ClusterIP"
        api.create(SERVICE, {**named("other"), "spec": {"type": kind, "clusterIP": address, "ports": ports}})
    api.delete(SERVICE, "web")
    assert not {("default", "web")} & {*api.services.ports.owners.values()}
    assert not any(("default", "web") in pool.owners.values() for pool in api.services.addresses.values())


@pytest.mark.parametrize(("old", "patch", "says"), INDECISIVE)
def test_values_that_the_new_type_cannot_have(old: str, patch: Spec, says: str) -> None:
    api, before = created(old, dual=old == "ClusterIP")
    refused(422, says, api.patch, SERVICE, "web", {"spec": patch})
    assert api.get(SERVICE, "web") == before
