"""Warning headers (kube-apiserver: GetWarningsForService and others)."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_network

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.service.spec import (
    CLUSTER_IP,
    EXTERNAL_NAME,
    NONE,
    is_headless,
)
from kdns.net import parse_network, unusable_addresses

JOBS_ORPHAN = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or "
    "set propagationPolicy=Orphan to suppress this warning"
)

_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_CONTROLLERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")


def inert(kind: Kind) -> str:
    return f"{kind.kind} is stored, but nothing in this control plane acts on it"


def service_cidr_warnings(service_cidr: Json) -> Iterable[str]:
    """Ranges with addresses that no mode of the dataplane serves. Differs: kube-apiserver does not warn."""
    for index, cidr in enumerate(service_cidr["spec"].get("cidrs") or ()):
        network = parse_network(cidr)
        if network and (what := unusable_addresses(network)):
            yield f"spec.cidrs[{index}]: {cidr} has {what}; no Service can be reached there"
        elif network and network.is_loopback:
            yield f"spec.cidrs[{index}]: {cidr} has loopback addresses; only mode userspace serves those"


def service_warnings(service: Json) -> Iterable[str]:
    """Deprecated fields, fields that the type ignores, and non-canonical addresses."""
    spec, annotations = service["spec"], service["metadata"].get("annotations")
    external = spec.get("externalIPs") or []
    alias = spec.get("type") == EXTERNAL_NAME
    headless = is_headless(spec) and spec.get("type") == CLUSTER_IP
    if annotations:
        yield from _topology(annotations)
    if not headless:
        yield from _addresses(
            "spec.clusterIPs", [address for address in spec.get("clusterIPs") or () if address != NONE]
        )
    if headless and spec.get("loadBalancerIP"):
        yield "spec.loadBalancerIP is ignored for headless services"
    if headless and external:
        yield "spec.externalIPs is ignored for headless services"
    if headless and spec.get("sessionAffinity") != NONE:
        yield "spec.SessionAffinity is ignored for headless services"
    yield from _addresses("spec.externalIPs", external)
    if external and not headless and not alias:
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if address := spec.get("loadBalancerIP"):
        yield from _address("spec.loadBalancerIP", address)
    for index, cidr in enumerate(spec.get("loadBalancerSourceRanges") or []):
        yield from _cidr(f"spec.loadBalancerSourceRanges[{index}]", cidr)
    if alias and external:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if not alias and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def endpoints_warnings(endpoints: Json) -> Iterable[str]:
    for number, subset in enumerate(endpoints.get("subsets") or []):
        for field in ("addresses", "notReadyAddresses"):
            for index, address in enumerate(subset.get(field) or []):
                yield from _address(f"subsets[{number}].{field}[{index}].ip", address["ip"])


def endpoint_slice_warnings(endpoint_slice: Json) -> Iterable[str]:
    """The deprecated address type, and non-canonical addresses that no controller wrote."""
    labels = endpoint_slice["metadata"].get("labels") or {}
    if endpoint_slice.get("addressType") == "FQDN":
        yield "spec.addressType: FQDN endpoints are deprecated"
    elif labels.get("endpointslice.kubernetes.io/managed-by") not in _CONTROLLERS:
        for number, endpoint in enumerate(endpoint_slice.get("endpoints") or []):
            yield from _addresses(f"endpoints[{number}].addresses", endpoint["addresses"])


def _topology(annotations: Json) -> Iterable[str]:
    """The annotations of topology hints. Differs: they have no effect, and a warning says so."""
    if _HINTS in annotations:
        yield f"annotation {_HINTS} is deprecated, please use {_MODE} instead"
    for name in (_HINTS, _MODE):
        if annotations.get(name) in {"Auto", "auto"}:
            yield f"annotation {name} has no effect; use spec.trafficDistribution: PreferSameZone"


def _addresses(path: str, addresses: list[str]) -> Iterable[str]:
    for index, address in enumerate(addresses):
        yield from _address(f"{path}[{index}]", address)


def _address(path: str, text: str) -> Iterable[str]:
    if ":" not in text:
        return
    try:
        address = IPv6Address(text)
    except ValueError:  # not an address, or one that only older servers accept
        return
    if str(address) != text:
        yield f'{path}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{address}")'


def _cidr(path: str, text: str) -> Iterable[str]:
    try:
        network = ip_network(text)
    except ValueError:
        return
    if network.version == 6 and str(network) != text:
        yield f'{path}: IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{network}")'
