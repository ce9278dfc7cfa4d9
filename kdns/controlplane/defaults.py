"""The values of fields that clients leave out, and the fields that are left out when they say nothing.

An object that comes in is copied as far as it is changed; the client's object and stored objects stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

from kdns.controlplane.defaults_apps import (
    default_daemon_set,
    default_deployment,
    default_replica_set,
    default_replication_controller,
    default_stateful_set,
)
from kdns.controlplane.defaults_kept import (
    default_claim,
    default_cron_job,
    default_ingress_class,
    default_job,
    default_secret,
    default_volume,
)
from kdns.controlplane.defaults_pod import default_pod
from kdns.controlplane.kinds import (
    CLAIM,
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    ENDPOINTS,
    INGRESS_CLASS,
    JOB,
    NAMESPACE,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    VOLUME,
    Json,
    Kind,
)
from kdns.controlplane.services import IP_TYPES, LOAD_BALANCER, is_external

_KEPT_WHEN_EMPTY = frozenset(
    {
        "allocateLoadBalancerNodePorts",
        "internalTrafficPolicy",
        "ipFamilyPolicy",
        "loadBalancerClass",
        "sessionAffinityConfig",
        "trafficDistribution",
    }
)
AFFINITY_TIMEOUT_S = 10800


def with_defaults(kind: Kind, obj: Json) -> Json:
    """A copy of the object with its defaults; kinds without defaults come back as they are."""
    make = _DEFAULTS.get(kind)
    return make(obj) if make else obj


def _said(fields: Json, kept: frozenset[str] = frozenset()) -> Json:
    """The fields that say something: not null, and not "", 0, false or empty unless that differs from absent."""
    return {key: value for key, value in fields.items() if value or (value is not None and key in kept)}


def default_service(obj: Json) -> Json:
    """Service (core/v1 defaults.go): type, affinity, protocols, target ports and traffic policies."""
    spec = _said(obj.get("spec") or {}, _KEPT_WHEN_EMPTY)
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
    if is_external(service):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] in IP_TYPES:
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == LOAD_BALANCER:
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        _ip_modes(service)
    return service


def _service_port(port: Json) -> Json:
    said = _said(port, frozenset({"appProtocol"}))
    said.setdefault("protocol", "TCP")
    if "targetPort" not in said and "port" in said:
        said["targetPort"] = said["port"]
    return said


def _ip_modes(service: Json) -> None:
    status = service.get("status") or {}
    ingress = (status.get("loadBalancer") or {}).get("ingress")
    if ingress:
        filled = [{**row, "ipMode": "VIP"} if row.get("ip") and not row.get("ipMode") else row for row in ingress]
        service["status"] = {**status, "loadBalancer": {**status["loadBalancer"], "ingress": filled}}


def default_endpoints(obj: Json) -> Json:
    """Endpoints: ports are TCP."""
    subsets = [
        {**subset, "ports": [{"protocol": "TCP", **port} for port in subset["ports"]]}
        if subset.get("ports")
        else subset
        for subset in obj.get("subsets") or []
    ]
    return {**obj, "subsets": subsets} if subsets else {key: value for key, value in obj.items() if key != "subsets"}


def default_endpoint_slice(obj: Json) -> Json:
    """EndpointSlice: ports are TCP and have a name, if an empty one; a missing list is an empty one."""
    ports = [{"name": "", "protocol": "TCP", **_not_null(port)} for port in obj.get("ports") or []]
    endpoints = [
        endpoint if "conditions" in endpoint else {**endpoint, "conditions": {}}
        for endpoint in obj.get("endpoints") or []
    ]
    return {**obj, "endpoints": endpoints, "ports": ports}


def _not_null(fields: Json) -> Json:
    return {key: value for key, value in fields.items() if value is not None}


def default_namespace(obj: Json) -> Json:
    """Namespace: its name as a label, the finalizer that waits for its content, and the phase."""
    meta, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    labels = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta.get("name", "")}
    status = obj.get("status") or {}
    return {
        **obj,
        "metadata": {**meta, "labels": labels},
        "spec": spec,
        "status": {**status, "phase": status.get("phase") or "Active"},
    }


_DEFAULTS: dict[Kind, Callable[[Json], Json]] = {
    SERVICE: default_service,
    ENDPOINTS: default_endpoints,
    ENDPOINT_SLICE: default_endpoint_slice,
    NAMESPACE: default_namespace,
    POD: default_pod,
    SECRET: default_secret,
    CLAIM: default_claim,
    VOLUME: default_volume,
    JOB: default_job,
    CRON_JOB: default_cron_job,
    INGRESS_CLASS: default_ingress_class,
    REPLICATION_CONTROLLER: default_replication_controller,
    DEPLOYMENT: default_deployment,
    REPLICA_SET: default_replica_set,
    STATEFUL_SET: default_stateful_set,
    DAEMON_SET: default_daemon_set,
}
