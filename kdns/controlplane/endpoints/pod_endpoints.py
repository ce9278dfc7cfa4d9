"""From Pods to endpoints, for Endpoints and EndpointSlices alike: which Pods count, at which addresses and ports."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.pod.pod import is_finished, pod_ips
from kdns.controlplane.kinds.service.spec import (
    EXTERNAL_NAME,
    NONE,
    address_family,
    spec_of,
)
from kdns.controlplane.storage.object_meta import is_terminating
from kdns.net import Address, family_of, parse_address

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
HEADLESS = "service.kubernetes.io/headless"
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"


def has_selector(service: Json) -> bool:
    return spec_of(service).get("selector") is not None and spec_of(service).get("type") != EXTERNAL_NAME


def publishes_not_ready(service: Json) -> bool:
    return bool(spec_of(service).get("publishNotReadyAddresses"))


def has_endpoint(pod: Json, *, terminating: bool) -> bool:
    """The Pod has an address and has not finished. A terminating Pod counts only with `terminating`."""
    return not is_finished(pod) and bool(pod_ips(pod)) and (terminating or not is_terminating(pod))


def addresses_in(pod: Json, family: str) -> list[str]:
    parsed = map(parse_address, pod_ips(pod))
    return [_text(address) for address in parsed if address and family_of(address) == family]


@lru_cache(maxsize=4096)
def _text(address: Address) -> str:
    """Cached, since each Pod is read several times in a row."""
    return str(address)


def hostname_in(pod: Json, service: Json) -> str:
    """Only Pods whose subdomain is the name of the Service have a hostname in it; else ""."""
    spec, mine = pod.get("spec") or {}, service["metadata"]
    belongs = spec.get("subdomain") == mine["name"] and pod["metadata"].get("namespace") == mine.get("namespace")
    return (spec.get("hostname") or "") if belongs else ""


def target_ports(pod: Json, service: Json) -> list[Json]:
    ports = []
    for port in spec_of(service).get("ports") or ():
        number = _target(pod, port)
        if number is not None:
            row = {"name": port.get("name") or "", "protocol": port.get("protocol") or "TCP", "port": number}
            ports.append({**row, **({"appProtocol": port["appProtocol"]} if port.get("appProtocol") else {})})
    return ports


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
    """Ports of containers, then of sidecars (init containers with restartPolicy Always)."""
    spec = pod.get("spec") or {}
    initial = spec.get("initContainers") or []
    sidecars = [container for container in initial if container.get("restartPolicy") == "Always"]
    for container in [*(spec.get("containers") or []), *sidecars]:
        yield from container.get("ports") or []


def is_portless(service: Json) -> bool:
    spec = spec_of(service)
    return not spec.get("ports") and spec.get("clusterIP") == NONE


def wants_headless_label(service: Json) -> bool:
    """True without a cluster IP."""
    return spec_of(service).get("clusterIP") in {None, "", NONE}


def families_of(service: Json) -> list[str]:
    """spec.ipFamilies. If absent, the family of clusterIP, or both families for a headless Service."""
    listed: list[str] = spec_of(service).get("ipFamilies") or []
    if listed:
        return listed
    ip = spec_of(service).get("clusterIP") or NONE
    return ["IPv4", "IPv6"] if ip == NONE else [address_family(ip)]


def target_ref(pod: Json) -> Json:
    meta = pod["metadata"]
    row = {"kind": "Pod", "namespace": meta.get("namespace", ""), "name": meta["name"], "uid": meta.get("uid", "")}
    return {key: value for key, value in row.items() if value}
