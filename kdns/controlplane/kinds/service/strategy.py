"""Services, ServiceCIDRs and IPAddresses: columns, defaults (core/v1 defaults.go) and strategies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kdns.controlplane.apimachinery.kinds import IP_ADDRESS, SERVICE, SERVICE_CIDR, Json, Kind
from kdns.controlplane.kinds import warnings
from kdns.controlplane.kinds.columns import AGE, NAME, NONE, Column, Printer, age, join_labels, name, printer_of
from kdns.controlplane.kinds.service.allocation import ServiceAllocator
from kdns.controlplane.kinds.service.ip_families import fill_on_read
from kdns.controlplane.kinds.service.service_cidr import (
    ip_address_of,
    names_of,
    service_of,
    validate_ip_address,
    validate_service_cidr,
)
from kdns.controlplane.kinds.service.spec import IP_TYPES, LOAD_BALANCER, addresses_of, is_external, spec_of
from kdns.controlplane.kinds.service.validation import validate_load_balancer_status, validate_service
from kdns.controlplane.kinds.strategy import (
    COMMON,
    DeleteStrategy,
    Hooks,
    OwnedObjects,
    Strategy,
    SubresourceStrategy,
    on_create,
    with_status,
)
from kdns.controlplane.storage.field_selectors import FieldLabels, fields
from kdns.controlplane.storage.store import StoredObject


def service_cells(service: Json, now_s: float) -> list[Any]:
    spec = service.get("spec", {})
    ports = ",".join(_port_text(port) for port in spec.get("ports") or ())
    return [
        name(service),
        spec.get("type", ""),
        (spec.get("clusterIPs") or [NONE])[0],
        _external_ip(spec, service.get("status", {})),
        ports or NONE,
        age(service, now_s),
        join_labels(spec.get("selector")),
    ]


def _port_text(port: Json) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"


def _external_ip(spec: Json, status: Json) -> str:
    external: list[str] = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or NONE
        case "LoadBalancer":
            ingress = status.get("loadBalancer", {}).get("ingress") or ()
            points = {entry.get("ip") or entry.get("hostname") or "" for entry in ingress} - {""}
            return ",".join([*sorted(points), *external]) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case _:
            return "<unknown>"


def ip_address_cells(obj: Json, _now_s: float) -> list[Any]:
    """Name and parent, as resource.group/namespace/name. kubectl shows no age."""
    parent = obj.get("spec", {}).get("parentRef") or {}
    resource = ".".join(filter(None, (parent.get("resource"), parent.get("group")))).lower()
    parts = filter(None, (resource, parent.get("namespace"), parent.get("name")))
    return [name(obj), "/".join(parts) or NONE]


_SERVICES: Final = Printer(
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
_SERVICE_CIDRS: Final = printer_of(("CIDRs=spec.cidrs", "Age"))
_IP_ADDRESSES: Final = Printer((NAME, Column("ParentRef", "spec.parentRef")), ip_address_cells)


_OPTIONAL = frozenset(
    {
        "allocateLoadBalancerNodePorts",
        "internalTrafficPolicy",
        "ipFamilyPolicy",
        "loadBalancerClass",
        "sessionAffinityConfig",
        "trafficDistribution",
    }
)
"""Fields whose empty value differs from an absent one."""

AFFINITY_TIMEOUT_S = 10800


def default_service(obj: Json) -> Json:
    """The rules are those of core/v1 defaults.go."""
    spec = _set_fields(obj.get("spec") or {}, _OPTIONAL)
    service = {**obj, "spec": spec}
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        config = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if config.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": AFFINITY_TIMEOUT_S}}
    if "ports" in spec:
        spec["ports"] = [_service_port(port) for port in spec["ports"]]
    if is_external(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] in IP_TYPES:
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == LOAD_BALANCER:
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        _ip_modes(service)
    return service


def prepare_service(new: Json, old: Json | None) -> Json:
    return new if old else {**new, "status": {"loadBalancer": {}}}


def _set_fields(fields: Json, optional: frozenset[str] = frozenset()) -> Json:
    """Drops null; also "", 0, false and empty values unless they are optional."""
    return {key: value for key, value in fields.items() if value or (value is not None and key in optional)}


def _service_port(port: Json) -> Json:
    fields = _set_fields(port, frozenset({"appProtocol"}))
    fields.setdefault("protocol", "TCP")
    if "targetPort" not in fields and "port" in fields:
        fields["targetPort"] = fields["port"]
    return fields


def _ip_modes(service: Json) -> None:
    status = service.get("status") or {}
    ingress = (status.get("loadBalancer") or {}).get("ingress")
    if ingress:
        filled = [{**row, "ipMode": "VIP"} if row.get("ip") and not row.get("ipMode") else row for row in ingress]
        service["status"] = {**status, "loadBalancer": {**status["loadBalancer"], "ingress": filled}}


def _addresses(service: Json) -> list[str]:
    return addresses_of(spec_of(service))


def _reserved(numbers: ServiceAllocator, version: StoredObject) -> list[str]:
    """Reads only the name: at start most IPAddresses need not be decoded."""
    numbers.reserve(version.key[1])
    return []


def _restored_range(numbers: ServiceAllocator, version: StoredObject) -> list[str]:
    numbers.follow_range(None, version.obj)
    return []


STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    SERVICE: Strategy(
        validate_service,
        _SERVICES,
        defaults=default_service,
        prepare=prepare_service,
        subresources={"status": SubresourceStrategy(validate_load_balancer_status)},
        generation=None,
        field_labels=FieldLabels({**COMMON, **fields("spec.clusterIP", "spec.type")}),
        warnings=warnings.service_warnings,
        allow_create_on_update=True,
        delete=DeleteStrategy(returns_object=True),
        hooks=Hooks(
            ServiceAllocator.follow,
            lambda numbers, version: numbers.restore(version.obj),
            ServiceAllocator.allocate,
            fill_on_read,
            OwnedObjects(IP_ADDRESS, _addresses, names_of, ip_address_of, service_of),
        ),
    ),
    SERVICE_CIDR: Strategy(
        validate_service_cidr,
        _SERVICE_CIDRS,
        prepare=on_create(with_status({})),
        generation=None,
        warnings=warnings.service_cidr_warnings,
        hooks=Hooks(ServiceAllocator.follow_range, _restored_range),
    ),
    IP_ADDRESS: Strategy(
        validate_ip_address,
        _IP_ADDRESSES,
        generation=None,
        hooks=Hooks(ServiceAllocator.follow_address, _reserved),
    ),
}
