"""The cells of each kind's row, in the order of its columns in tables.py; Pods have tables_pods.py.

Texts are those of kube-apiserver's printers (pkg/printers/internalversion).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kdns.controlplane.ages import since
from kdns.controlplane.kinds import Json

NONE = "<none>"
_SHOWN = 3
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE = "kubernetes.io/role"


def name(obj: Json) -> str:
    """The name of an object."""
    return str(obj.get("metadata", {}).get("name", ""))


def age(obj: Json, now_s: float) -> str:
    """The age of an object at a time (Unix seconds)."""
    return since(obj.get("metadata", {}).get("creationTimestamp"), now_s)


def _labels(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def _few(texts: Iterable[str], empty: str) -> str:
    """The first three and how many follow."""
    listed = list(texts)
    more = f" + {len(listed) - _SHOWN} more..." if len(listed) > _SHOWN else ""
    return (",".join(listed[:_SHOWN]) or empty) + more


def _host_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def namespace_cells(namespace: Json, now_s: float) -> list[Any]:
    """Name, phase, age."""
    return [name(namespace), namespace.get("status", {}).get("phase", ""), age(namespace, now_s)]


def service_cells(service: Json, now_s: float) -> list[Any]:
    """Name, type, addresses inside and outside, ports, age, selector."""
    spec = service.get("spec", {})
    ports = ",".join(_service_port(port) for port in spec.get("ports") or ())
    return [
        name(service),
        spec.get("type", ""),
        (spec.get("clusterIPs") or [NONE])[0],
        _external_ip(spec, service.get("status", {})),
        ports or NONE,
        age(service, now_s),
        _labels(spec.get("selector")),
    ]


def _service_port(port: Json) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"


def _external_ip(spec: Json, status: Json) -> str:
    """Where a Service is reached from outside: its load balancer's points, then its externalIPs."""
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
    """Name, ranges, age."""
    return [name(obj), ",".join(obj.get("spec", {}).get("cidrs") or ()), age(obj, now_s)]


def ip_address_cells(obj: Json, _now_s: float) -> list[Any]:
    """Name and parent, as resource.group/namespace/name; kubectl shows no age."""
    parent = obj.get("spec", {}).get("parentRef") or {}
    resource = ".".join(filter(None, (parent.get("resource"), parent.get("group")))).lower()
    parts = filter(None, (resource, parent.get("namespace"), parent.get("name")))
    return [name(obj), "/".join(parts) or NONE]


def endpoints_cells(endpoints: Json, now_s: float) -> list[Any]:
    """Name, ready endpoints as address:port, age. Blank if all of them are not ready, as in Kubernetes."""
    subsets = endpoints.get("subsets") or ()
    shown = _few((text for subset in subsets for text in _subset(subset)), "") if subsets else NONE
    return [name(endpoints), shown, age(endpoints, now_s)]


def _subset(subset: Json) -> Iterable[str]:
    addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
    ports = subset.get("ports")
    return [_host_port(each, port.get("port", 0)) for port in ports for each in addresses] if ports else addresses


def endpoint_slice_cells(endpoint_slice: Json, now_s: float) -> list[Any]:
    """Name, address type, ports, addresses, age."""
    ports = [str(port.get("port") or port.get("name") or "*") for port in endpoint_slice.get("ports") or ()]
    addresses = [each for end in endpoint_slice.get("endpoints") or () for each in end.get("addresses") or ()]
    return [
        name(endpoint_slice),
        endpoint_slice.get("addressType", ""),
        _few(ports, "<unset>"),
        _few(addresses, "<unset>"),
        age(endpoint_slice, now_s),
    ]


def node_cells(node: Json, now_s: float) -> list[Any]:
    """Name, state, roles, age, version, addresses, system."""
    spec, status = node.get("spec", {}), node.get("status", {})
    system = status.get("nodeInfo", {})
    ready = next((each.get("status") for each in status.get("conditions") or () if each.get("type") == "Ready"), None)
    state = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return [
        name(node),
        f"{state},SchedulingDisabled" if spec.get("unschedulable") else state,
        _roles(node.get("metadata", {}).get("labels") or {}),
        age(node, now_s),
        system.get("kubeletVersion", ""),
        _node_address(status, "InternalIP"),
        _node_address(status, "ExternalIP"),
        *(system.get(key) or "<unknown>" for key in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def _roles(labels: Mapping[str, str]) -> str:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return ",".join(sorted((roles | {labels.get(_ROLE, "")}) - {""})) or NONE


def _node_address(status: Json, wanted: str) -> str:
    addresses = status.get("addresses") or ()
    return next((str(each.get("address")) for each in addresses if each.get("type") == wanted), NONE)


def event_cells(event: Json, now_s: float) -> list[Any]:
    """Ages, what happened to what, who says so, how often."""
    subject, source = event.get("involvedObject", {}), event.get("source", {})
    series = event.get("series")
    first = since(event.get("firstTimestamp") or event.get("eventTime"), now_s)
    last = since(event["lastTimestamp"], now_s) if event.get("lastTimestamp") else first
    count = event.get("count") or 1
    if series:
        last, count = since(series.get("lastObservedTime"), now_s), series.get("count", 0)
    reporter = source.get("component") or event.get("reportingComponent")
    instance = source.get("host") or event.get("reportingInstance")
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        "/".join(filter(None, (subject.get("kind", "").lower(), subject.get("name")))),
        subject.get("fieldPath", ""),
        ", ".join(filter(None, (reporter, instance))),
        event.get("message", "").strip(),
        first,
        count,
        name(event),
    ]
