"""Combinations of fields in a Service's spec. `spec` is that of a Service with its defaults."""

from __future__ import annotations

from typing import Any

from kdns.controlplane.apimachinery.kinds import Json
from kdns.net import Address, parse_address

NONE = "None"
CLUSTER_IP, NODE_PORT, LOAD_BALANCER, EXTERNAL_NAME = "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"
SINGLE, PREFER, REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
IP_TYPES = (CLUSTER_IP, NODE_PORT, LOAD_BALANCER)
NODE_PORT_TYPES = (NODE_PORT, LOAD_BALANCER)


def spec_of(service: Json) -> Json:
    spec: Json = service.get("spec") or {}
    return spec


def ingress_of(service: Json) -> list[Json]:
    return ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []


def is_headless(spec: Json) -> bool:
    ip: str | None = spec.get("clusterIP")
    return ip == NONE or spec.get("clusterIPs") == [NONE]


def addresses_of(spec: Json) -> list[str]:
    return [] if spec.get("type") == EXTERNAL_NAME or is_headless(spec) else spec.get("clusterIPs") or []


def held_addresses(spec: Json) -> list[Address]:
    """`addresses_of` as values, without texts of older servers that are no addresses."""
    return [parsed for address in addresses_of(spec) if (parsed := parse_address(address))]


def takes_node_ports(spec: Json) -> bool:
    allocates: bool | None = spec.get("allocateLoadBalancerNodePorts")
    return spec.get("type") == NODE_PORT or (spec.get("type") == LOAD_BALANCER and allocates is not False)


def needs_health_check(spec: Json) -> bool:
    """A load balancer with externalTrafficPolicy Local has a healthCheckNodePort."""
    policy: str | None = spec.get("externalTrafficPolicy")
    return spec.get("type") == LOAD_BALANCER and policy == "Local"


def is_external(spec: Json) -> bool:
    """externalTrafficPolicy applies: traffic can come from outside."""
    kind: str | None = spec.get("type")
    return kind in NODE_PORT_TYPES or (kind == CLUSTER_IP and bool(spec.get("externalIPs")))


def node_ports(spec: Json) -> list[int]:
    return [port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")]


def ports_held(spec: Json) -> list[int]:
    """Node ports and healthCheckNodePort that were allocated to the Service, without duplicates.

    Differs: an ExternalName Service may have a nodePort, which is not validated; kube-apiserver frees that port with
    the Service even if another Service owns it.
    """
    health = spec.get("healthCheckNodePort") if needs_health_check(spec) else None
    ports = node_ports(spec) if spec.get("type") in NODE_PORT_TYPES else []
    return list(dict.fromkeys([*ports, health] if health else ports))


def same(old: Json, new: Json, field: str) -> bool:
    """Absent, empty and zero are equal."""
    return bool(_plain(old.get(field)) == _plain(new.get(field)))


def _plain(value: Any) -> Any:
    return value if value or value is False else None


def address_family(address: str) -> str:
    """`IPv4` or `IPv6`; "" for other text."""
    parsed = parse_address(address)
    return f"IPv{parsed.version}" if parsed else ""


def other_family(family: str) -> str:
    return "IPv6" if family == "IPv4" else "IPv4"
