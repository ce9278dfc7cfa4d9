"""The rules of a Service on create, on update and for its status (as ValidateService in kube-apiserver)."""

from __future__ import annotations

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import (
    duplicate,
    forbidden,
    frozen,
    immutable,
    invalid_value,
    invalid_values,
    required,
    unsupported,
)
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.service.ip_families import validate_ip_changes, validate_ip_fields
from kdns.controlplane.kinds.service.spec import (
    CLUSTER_IP,
    EXTERNAL_NAME,
    IP_TYPES,
    LOAD_BALANCER,
    NODE_PORT_TYPES,
    NONE,
    address_family,
    ingress_of,
    is_external,
    is_headless,
    needs_health_check,
    spec_of,
)
from kdns.controlplane.kinds.validation import (
    IMMUTABLE,
    ONCE_SET,
    validate_labels,
    validate_meta,
    validate_meta_update,
)

PROTOCOLS = ("SCTP", "TCP", "UDP")
POLICIES = ("Cluster", "Local")
DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
ONLY_LOAD_BALANCER = "may only be used when `type` is 'LoadBalancer'"
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"


def validate_service(service: Json, old: Json | None) -> list[Cause]:
    """On update, immutable fields are checked first. Stored names and addresses are not validated again."""
    spec, stored = service["spec"], spec_of(old) if old else None
    annotations: Json = service["metadata"].get("annotations") or {}
    kind, ports, causes = spec.get("type"), spec.get("ports") or [], list[Cause]()
    if old and stored is not None:
        causes += validate_meta_update(old, service)
        causes += validate_ip_changes(spec, stored)
        causes += validate_load_balancer_class(spec, stored)
        causes += _health_check_change(spec, stored)
    causes += validate_meta(service, formats.dns_label)
    if annotations:
        causes += _topology(annotations)
    causes += _type_rules(spec)
    names: set[str] = set()
    for index, port in enumerate(ports):
        causes += _port(f"spec.ports[{index}]", port, names, named=len(ports) > 1)
    if selector := spec.get("selector"):
        causes += validate_labels("spec.selector", selector)
    causes += _affinity(spec)
    if stored is not None:  # those of a new Service are checked before addresses are allocated (`fill_families`)
        causes += validate_ip_fields(spec, stored)
    if spec.get("externalIPs"):
        causes += _external_ips(spec, stored)
    if not kind:
        causes.append(required("spec.type"))
    elif kind not in {*IP_TYPES, EXTERNAL_NAME}:
        causes.append(unsupported("spec.type", kind, sorted((*IP_TYPES, EXTERNAL_NAME))))
    causes += _node_ports(kind, ports)
    causes += _source_ranges(spec, annotations, old)
    causes += _load_balancer_fields(spec)
    if "loadBalancerClass" in spec:
        causes += validate_load_balancer_class(spec)
    causes += validate_external_traffic(spec)
    causes += _internal_traffic(spec)
    return causes


def _topology(annotations: Json) -> list[Cause]:
    mode, hints = annotations.get(TOPOLOGY_MODE), annotations.get(TOPOLOGY_HINTS)
    if mode is None or hints is None or mode == hints:
        return []
    detail = f"must match annotations[{TOPOLOGY_HINTS}] when both are specified"
    return [invalid_value(f"metadata.annotations[{TOPOLOGY_MODE}]", mode, detail)]


def _type_rules(spec: Json) -> list[Cause]:
    kind, causes = spec.get("type"), []
    if not spec.get("ports") and not is_headless(spec) and kind != EXTERNAL_NAME:
        causes.append(required("spec.ports"))
    if kind in NODE_PORT_TYPES and is_headless(spec):
        causes.append(invalid_value("spec.clusterIPs[0]", NONE, f"may not be set to 'None' for {kind} services"))
    if kind == EXTERNAL_NAME:
        causes += [
            forbidden(f"spec.{field}", "may not be set for ExternalName services")
            for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
            if spec.get(field) not in (None, [])
        ]
        name = (spec.get("externalName") or "").removesuffix(".")
        causes += invalid_values("spec.externalName", name, formats.dns_subdomain(name)) if name else []
        causes += [] if name else [required("spec.externalName")]
    return causes


def _port(path: str, port: Json, names: set[str], *, named: bool) -> list[Cause]:
    causes, name = [], port.get("name") or ""
    if named and not name:
        causes.append(required(f"{path}.name"))
    elif name:
        causes += invalid_values(f"{path}.name", name, formats.dns_label(name))
        causes += [duplicate(f"{path}.name", name)] if name in names else []
        names.add(name)
    number = port.get("port") or 0
    causes += invalid_values(f"{path}.port", number, formats.port_number(number))
    causes += validate_protocol(f"{path}.protocol", port.get("protocol"))
    target = port.get("targetPort") or 0
    wrong = formats.port_name(target) if isinstance(target, str) else formats.port_number(target)
    causes += invalid_values(f"{path}.targetPort", target, wrong)
    if port.get("appProtocol") is not None:
        causes += invalid_values(
            f"{path}.appProtocol", port["appProtocol"], formats.qualified_name(port["appProtocol"])
        )
    return causes


def validate_protocol(path: str, protocol: str | None) -> list[Cause]:
    if not protocol:
        return [required(path)]
    return [] if protocol in PROTOCOLS else [unsupported(path, protocol, PROTOCOLS)]


def _affinity(spec: Json) -> list[Cause]:
    affinity, config, path = (
        spec.get("sessionAffinity"),
        spec.get("sessionAffinityConfig"),
        "spec.sessionAffinityConfig",
    )
    if not affinity:
        return [required("spec.sessionAffinity")]
    if affinity not in {"ClientIP", NONE}:
        return [unsupported("spec.sessionAffinity", affinity, ("ClientIP", NONE))]
    if affinity == NONE:
        return [] if config is None else [forbidden(path, "must not be set when session affinity is None")]
    for level, value in ((path, config), (f"{path}.clientIP", (config or {}).get("clientIP"))):
        if value is None:
            return [required(level, "when session affinity type is ClientIP")]
    timeout = (config or {})["clientIP"].get("timeoutSeconds")
    if timeout is None:
        return [required(f"{path}.clientIP.timeoutSeconds", "when session affinity type is ClientIP")]
    allowed = 0 < timeout <= 86400
    detail = "must be greater than 0 and less than 86400"
    return [] if allowed else [invalid_value(f"{path}.clientIP.timeoutSeconds", timeout, detail)]


def _external_ips(spec: Json, old: Json | None) -> list[Cause]:
    stored = frozenset(old.get("externalIPs") or ()) if old else frozenset()
    causes = []
    for index, address in enumerate(spec["externalIPs"]):
        wrong = formats.ip_problems(address, stored) or formats.endpoint_ip_problems(address)
        causes += invalid_values(f"spec.externalIPs[{index}]", address, wrong)
    return causes


def _node_ports(kind: str | None, ports: list[Json]) -> list[Cause]:
    causes: list[Cause] = []
    rows = [(f"spec.ports[{index}]", port) for index, port in enumerate(ports)]
    if kind == CLUSTER_IP:
        detail = "may not be used when `type` is 'ClusterIP'"
        causes += [forbidden(f"{path}.nodePort", detail) for path, port in rows if port.get("nodePort")]
    used, seen = set(), set()
    for path, port in rows:
        if port.get("nodePort"):
            key = port.get("protocol"), port["nodePort"]
            causes += [duplicate(f"{path}.nodePort", port["nodePort"])] if key in used else []
            used.add(key)
    for path, port in rows:
        pair = port.get("protocol"), port.get("port")
        causes += [_same_port(path, port)] if pair in seen else []
        seen.add(pair)
    return causes


def _same_port(path: str, port: Json) -> Cause:
    key = {"Name": "", "Protocol": port.get("protocol"), "AppProtocol": None}
    return duplicate(path, {**key, "Port": port.get("port"), "TargetPort": 0, "NodePort": 0})


def _source_ranges(spec: Json, annotations: Json, old: Json | None) -> list[Cause]:
    ranges = spec.get("loadBalancerSourceRanges") or []
    stored_ranges = {text.strip() for text in spec_of(old).get("loadBalancerSourceRanges") or []} if old else set()
    value = annotations.get(SOURCE_RANGES)
    path = f"metadata.annotations[{SOURCE_RANGES}]"
    if ranges:
        path = "spec.LoadBalancerSourceRanges"
        rows = [(f"{path}[{index}]", text.strip()) for index, text in enumerate(ranges)]
    elif value is None:
        return []
    else:
        stored = ((old or {}).get("metadata") or {}).get("annotations") or {}
        unchanged = stored.get(SOURCE_RANGES) == value
        rows = [(path, text.strip()) for text in value.split(",")] if value.strip() and not unchanged else []
        stored_ranges = set()
    causes = [] if spec.get("type") == LOAD_BALANCER else [forbidden(path, ONLY_LOAD_BALANCER)]
    for where, text in rows:
        causes += invalid_values(where, text, formats.cidr_problems(text, stored_ranges))
    return causes


def _load_balancer_fields(spec: Json) -> list[Cause]:
    allocate = spec.get("allocateLoadBalancerNodePorts")
    if spec.get("type") == LOAD_BALANCER:
        return [required("allocateLoadBalancerNodePorts")] if allocate is None else []
    return [] if allocate is None else [forbidden("spec.allocateLoadBalancerNodePorts", ONLY_LOAD_BALANCER)]


def validate_load_balancer_class(spec: Json, old: Json | None = None) -> list[Cause]:
    """A qualified name, only for type LoadBalancer, and immutable while the type stays."""
    path, causes = "spec.loadBalancerClass", []
    value, balanced = spec.get("loadBalancerClass"), spec.get("type") == LOAD_BALANCER
    if old and balanced and old.get("type") == LOAD_BALANCER and old.get("loadBalancerClass") != value:
        causes.append(immutable(path, value, ONCE_SET))
    if value is None:
        return causes
    return causes + (
        invalid_values(path, value, formats.qualified_name(value))
        if balanced
        else [forbidden(path, ONLY_LOAD_BALANCER)]
    )


def validate_external_traffic(spec: Json) -> list[Cause]:
    causes = []
    policy, port = spec.get("externalTrafficPolicy"), spec.get("healthCheckNodePort") or 0
    path = "spec.externalTrafficPolicy"
    if not is_external(spec):
        detail = "may only be set for externally-accessible services"
        causes += [invalid_value(path, policy, detail)] if policy else []
    elif not policy:
        causes.append(required(path))
    elif policy not in POLICIES:
        causes.append(unsupported(path, policy, POLICIES))
    if not needs_health_check(spec):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        return causes + ([invalid_value("spec.healthCheckNodePort", port, detail)] if port else [])
    if not port:
        return [*causes, required("spec.healthCheckNodePort")]
    return causes + invalid_values("spec.healthCheckNodePort", port, formats.port_number(port))


def _internal_traffic(spec: Json) -> list[Cause]:
    policy, path = spec.get("internalTrafficPolicy"), "spec.internalTrafficPolicy"
    causes = []
    if policy is None and spec.get("type") in IP_TYPES:
        causes.append(required(path))
    elif policy is not None and policy not in POLICIES:
        causes.append(unsupported(path, policy, POLICIES))
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in DISTRIBUTIONS:
        causes.append(unsupported("spec.trafficDistribution", distribution, DISTRIBUTIONS))
    return causes


def validate_load_balancer_status(service: Json, old: Json | None, path: str = "status.loadBalancer") -> list[Cause]:
    """status.loadBalancer.ingress of a Service; stored addresses stay valid. Causes are below `path`."""
    causes, old = [], old or {}
    ingress = ingress_of(service)
    if spec_of(service).get("type") != LOAD_BALANCER and ingress and ingress != ingress_of(old):
        return [forbidden(f"{path}.ingress", "may only be used when `spec.type` is 'LoadBalancer'")]
    stored = {entry["ip"] for entry in ingress_of(old) if entry.get("ip")}
    for index, entry in enumerate(ingress):
        at, address, mode = f"{path}.ingress[{index}]", entry.get("ip"), entry.get("ipMode")
        if address:
            causes += invalid_values(f"{at}.ip", address, formats.ip_problems(address, stored))
            causes += [] if mode else [required(f"{at}.ipMode", "must be specified when `ip` is set")]
        elif mode is not None:
            causes.append(forbidden(f"{at}.ipMode", "may not be specified when `ip` is not set"))
        if address and mode and mode not in {"VIP", "Proxy"}:
            causes.append(unsupported(f"{at}.ipMode", mode, ("Proxy", "VIP")))
        if name := entry.get("hostname"):
            causes += invalid_values(f"{at}.hostname", name, formats.dns_subdomain(name))
            if address_family(name):
                causes.append(invalid_value(f"{at}.hostname", name, "must be a DNS name, not an IP address"))
    return causes


def _health_check_change(spec: Json, old: Json) -> list[Cause]:
    is_same = old.get("healthCheckNodePort") == spec.get("healthCheckNodePort")
    if is_same or not (needs_health_check(old) and needs_health_check(spec)):
        return []
    return [frozen("spec.healthCheckNodePort", IMMUTABLE)]
