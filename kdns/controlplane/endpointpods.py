"""What a Service's controllers ask of a Pod: is it in, is it ready, at which address, behind which port."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from kdns.controlplane.formats import parse_ip
from kdns.controlplane.kinds import Json
from kdns.controlplane.services import NONE, address_family, ip_families, ports_of, spec_of

SERVICE_NAME = "kubernetes.io/service-name"
HEADLESS = "service.kubernetes.io/headless"
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"


def status_of(pod: Json) -> Json:
    """The status, never None."""
    status: Json = pod.get("status") or {}
    return status


def ready_condition(pod: Json) -> Json | None:
    """The Pod's Ready condition."""
    for condition in status_of(pod).get("conditions") or []:
        if condition.get("type") == "Ready":
            found: Json = condition
            return found
    return None


def is_ready(pod: Json) -> bool:
    """Whether the Pod's Ready condition is True."""
    return (ready_condition(pod) or {}).get("status") == "True"


def is_terminating(pod: Json) -> bool:
    """Whether the Pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def publishes_not_ready(service: Json) -> bool:
    """spec.publishNotReadyAddresses."""
    return bool(spec_of(service).get("publishNotReadyAddresses"))


def has_endpoint(pod: Json, *, terminating: bool) -> bool:
    """Whether the Pod is an endpoint: it has an address, is not finished and, unless `terminating`, not going away."""
    status = status_of(pod)
    finished = status.get("phase") in {"Succeeded", "Failed"}
    return not finished and bool(pod_ips(pod)) and (terminating or not is_terminating(pod))


def pod_ips(pod: Json) -> list[str]:
    """All addresses of the Pod, the primary one first."""
    status = status_of(pod)
    listed = [entry["ip"] for entry in status.get("podIPs") or [] if entry.get("ip")]
    return listed or ([status["podIP"]] if status.get("podIP") else [])


def addresses_in(pod: Json, family: str) -> list[str]:
    """The Pod's addresses of one family, spelled canonically."""
    spelled = map(_canonical, pod_ips(pod))
    return [ip for version, ip in spelled if version == family]


@lru_cache(maxsize=4096)
def _canonical(ip: str) -> tuple[str, str]:
    """The family of an address, and its one spelling; each is asked for several times in a row."""
    parsed = parse_ip(ip)
    return (f"IPv{parsed.version}", str(parsed)) if parsed else ("", ip)


def hostname_in(pod: Json, service: Json) -> str:
    """The name that the Pod has inside a headless Service: its hostname, when its subdomain is the Service's name."""
    spec, mine = pod.get("spec") or {}, service["metadata"]
    belongs = spec.get("subdomain") == mine["name"] and pod["metadata"].get("namespace") == mine.get("namespace")
    return (spec.get("hostname") or "") if belongs else ""


def target_ports(pod: Json, service: Json) -> list[Json]:
    """name, protocol, port and appProtocol behind each port of the Service that the Pod has."""
    found = []
    for port in ports_of(service):
        number = _target(pod, port)
        if number is not None:
            row = {"name": port.get("name") or "", "protocol": port.get("protocol") or "TCP", "port": number}
            found.append({**row, **({"appProtocol": port["appProtocol"]} if port.get("appProtocol") else {})})
    return found


def _target(pod: Json, port: Json) -> int | None:
    target = port.get("targetPort") or 0
    if not isinstance(target, str):
        return int(target)
    protocol = port.get("protocol") or "TCP"
    for offered in _container_ports(pod):
        if offered.get("name") == target and (offered.get("protocol") or "TCP") == protocol:
            return int(offered["containerPort"])
    return None


def _container_ports(pod: Json) -> Iterable[Json]:
    """Ports of containers, then of sidecars: init containers that run on."""
    spec = pod.get("spec") or {}
    sidecars = [each for each in spec.get("initContainers") or [] if each.get("restartPolicy") == "Always"]
    for container in [*(spec.get("containers") or []), *sidecars]:
        yield from container.get("ports") or []


def is_portless(service: Json) -> bool:
    """Whether the Service is headless and names no port."""
    return not ports_of(service) and spec_of(service).get("clusterIP") == NONE


def wants_headless_label(service: Json) -> bool:
    """Whether there is no virtual IP, so that Endpoints and slices carry the headless label."""
    return spec_of(service).get("clusterIP") in {None, "", NONE}


def families_of(service: Json) -> list[str]:
    """The families a Service serves; where they are not filled in, that of its address, or both when it has none."""
    if listed := ip_families(service):
        return listed
    ip = spec_of(service).get("clusterIP") or NONE
    return ["IPv4", "IPv6"] if ip == NONE else [address_family(ip)]


def target_ref(pod: Json) -> Json:
    """The reference from an endpoint to its Pod."""
    meta = pod["metadata"]
    row = {"kind": "Pod", "namespace": meta.get("namespace", ""), "name": meta["name"], "uid": meta.get("uid", "")}
    return {key: value for key, value in row.items() if value}
