"""The defaults of Services (core/v1 defaults.go), and the fields that are dropped when they are empty.

Arguments are not changed.
"""

from __future__ import annotations

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.service.spec import IP_TYPES, LOAD_BALANCER, is_external

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
    """Sets the defaults of a Service (core/v1 defaults.go). Arguments are not changed."""
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
    """Returns a Service whose status is empty if it is new."""
    return new if old else {**new, "status": {"loadBalancer": {}}}


def _set_fields(fields: Json, optional: frozenset[str] = frozenset()) -> Json:
    """Returns the fields that are set: not null, and not "", 0, false or empty unless they are optional."""
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
