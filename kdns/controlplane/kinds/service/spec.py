"""Accessors of a Service: fields that may be absent, and properties of its type."""

from __future__ import annotations

from typing import Any

from kdns.controlplane.apimachinery.kinds import Json
from kdns.net import parse_address

NONE = "None"
CLUSTER_IP, NODE_PORT, LOAD_BALANCER, EXTERNAL_NAME = "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"
SINGLE, PREFER, REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
IP_TYPES = (CLUSTER_IP, NODE_PORT, LOAD_BALANCER)


def spec_of(service: Json) -> Json:
    """Returns the spec, never None."""
    spec: Json = service.get("spec") or {}
    return spec


def ports_of(service: Json) -> list[Json]:
    """Returns spec.ports, never None."""
    return spec_of(service).get("ports") or []


def cluster_ips(service: Json) -> list[str]:
    """Returns spec.clusterIPs, never None."""
    return spec_of(service).get("clusterIPs") or []


def ip_families(service: Json) -> list[str]:
    """Returns spec.ipFamilies, never None."""
    return spec_of(service).get("ipFamilies") or []


def type_of(service: Json) -> str:
    """Returns spec.type; "" if it is absent."""
    return spec_of(service).get("type") or ""


def is_headless(service: Json) -> bool:
    """Returns whether clusterIP is None."""
    ip: str | None = spec_of(service).get("clusterIP")
    return ip == NONE or cluster_ips(service) == [NONE]


def is_selectorless(service: Json) -> bool:
    """Returns whether the selector is missing; the rules of IP families treat an empty one in the same way."""
    return not spec_of(service).get("selector")


def needs_cluster_ip(service: Json) -> bool:
    """Returns whether the type has cluster IPs, `None` included."""
    return type_of(service) != EXTERNAL_NAME


def addresses_of(service: Json) -> list[str]:
    """Returns the cluster IPs that were allocated to the Service."""
    return cluster_ips(service) if needs_cluster_ip(service) and not is_headless(service) else []


def has_node_ports(service: Json) -> bool:
    return type_of(service) in {NODE_PORT, LOAD_BALANCER}


def takes_node_ports(service: Json) -> bool:
    if type_of(service) == LOAD_BALANCER:
        wanted: bool | None = spec_of(service).get("allocateLoadBalancerNodePorts")
        return wanted is not False
    return type_of(service) == NODE_PORT


def needs_health_check(service: Json) -> bool:
    """Returns whether it has a healthCheckNodePort: a load balancer with externalTrafficPolicy Local."""
    policy: str | None = spec_of(service).get("externalTrafficPolicy")
    return type_of(service) == LOAD_BALANCER and policy == "Local"


def is_external(service: Json) -> bool:
    """Returns whether externalTrafficPolicy applies: traffic can come from outside."""
    external_ips = type_of(service) == CLUSTER_IP and bool(spec_of(service).get("externalIPs"))
    return has_node_ports(service) or external_ips


def node_ports(service: Json) -> list[int]:
    """Returns every nodePort in use, in order of ports."""
    return [port["nodePort"] for port in ports_of(service) if port.get("nodePort")]


def owned_node_ports(service: Json) -> list[int]:
    """Returns the node ports that were allocated to the Service, each once.

    Differs: an ExternalName Service may have a nodePort, which is not validated; kube-apiserver frees that port with
    the Service even if it is another's.
    """
    return list(dict.fromkeys(node_ports(service))) if has_node_ports(service) else []


def ports_held(service: Json) -> list[int]:
    """Returns all ports that were allocated to the Service: node ports and healthCheckNodePort."""
    health = spec_of(service).get("healthCheckNodePort") if needs_health_check(service) else None
    return [*owned_node_ports(service), *([health] if health else [])]


def same(old: Json, new: Json, field: str) -> bool:
    """Returns whether a field of the spec is equal in both; absent, empty and zero are equal."""
    return bool(_plain(spec_of(old).get(field)) == _plain(spec_of(new).get(field)))


def _plain(value: Any) -> Any:
    return value if value or value is False else None


def address_family(address: str) -> str:
    """Returns `IPv4` or `IPv6`; "" for other text."""
    parsed = parse_address(address)
    return f"IPv{parsed.version}" if parsed else ""


def other_family(family: str) -> str:
    return "IPv6" if family == "IPv4" else "IPv4"
