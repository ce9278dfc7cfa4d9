"""The columns of Services, ServiceCIDRs and IPAddresses."""

from __future__ import annotations

from typing import Any, Final

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.columns import AGE, NAME, NONE, Column, Printer, age, join_labels, name


def service_cells(service: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, type, addresses inside and outside, ports, age, selector."""
    spec = service.get("spec", {})
    ports = ",".join(_service_port(port) for port in spec.get("ports") or ())
    return [
        name(service),
        spec.get("type", ""),
        (spec.get("clusterIPs") or [NONE])[0],
        _external_ip(spec, service.get("status", {})),
        ports or NONE,
        age(service, now_s),
        join_labels(spec.get("selector")),
    ]


def _service_port(port: Json) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"


def _external_ip(spec: Json, status: Json) -> str:
    """Returns the external addresses of a Service: those of its load balancer, then externalIPs."""
    external: list[str] = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or NONE
        case "LoadBalancer":
            ingress = status.get("loadBalancer", {}).get("ingress") or ()
            points = {each.get("ip") or each.get("hostname") or "" for each in ingress} - {""}
            return ",".join([*sorted(points), *external]) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case _:
            return "<unknown>"


def service_cidr_cells(obj: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, ranges, age."""
    return [name(obj), ",".join(obj.get("spec", {}).get("cidrs") or ()), age(obj, now_s)]


def ip_address_cells(obj: Json, _now_s: float) -> list[Any]:
    """Returns the cells: name and parent, as resource.group/namespace/name; kubectl shows no age."""
    parent = obj.get("spec", {}).get("parentRef") or {}
    resource = ".".join(filter(None, (parent.get("resource"), parent.get("group")))).lower()
    parts = filter(None, (resource, parent.get("namespace"), parent.get("name")))
    return [name(obj), "/".join(parts) or NONE]


SERVICES: Final = Printer(
    (
        NAME,
        Column("Type", "spec.type"),
        Column("Cluster-IP", "spec.clusterIP"),
        Column("External-IP", "spec.externalIPs"),
        Column("Port(s)", "spec.ports"),
        AGE,
        Column("Selector", "spec.selector", priority=1),
    ),
    service_cells,
)
SERVICE_CIDRS: Final = Printer((NAME, Column("CIDRs", "spec.cidrs"), AGE), service_cidr_cells)
IP_ADDRESSES: Final = Printer((NAME, Column("ParentRef", "spec.parentRef")), ip_address_cells)
