"""ServiceCIDRs, the ranges of cluster IPs, and IPAddresses, one for each cluster IP.

An IPAddress that a person creates reserves its address.
"""

from __future__ import annotations

from ipaddress import ip_network

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.conditions import condition_of
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import immutable, invalid_value, invalid_values, required
from kdns.controlplane.apimachinery.kinds import IP_ADDRESS, Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.kinds.service.spec import address_family, held_addresses, spec_of
from kdns.controlplane.kinds.validation import IMMUTABLE, validate_meta, validate_meta_update
from kdns.net import Network

DEFAULT = "kubernetes"
"""The ServiceCIDR of the configured ranges."""

CIDRS = "spec.cidrs"
ONE_EACH = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"

FAMILY_LABEL = "ipaddress.kubernetes.io/ip-family"
MANAGED_BY = "ipaddress.kubernetes.io/managed-by"
ALLOCATOR = "ipallocator.k8s.io"


_READY: Json = {"status": "True"}
"""For an object without the condition: no controller need run."""


def networks_of(obj: Json) -> tuple[Network, ...]:
    return tuple(ip_network(cidr) for cidr in (obj.get("spec") or {}).get("cidrs") or ())


def gives_addresses(obj: Json) -> bool:
    """No addresses are allocated from a ServiceCIDR that is terminating or not ready.

    If no range gives any, a new Service is refused because the range is full, as by kube-apiserver (MetaAllocator).
    """
    return (
        not obj["metadata"].get("deletionTimestamp") and (condition_of(obj, "Ready") or _READY).get("status") == "True"
    )


def default_service_cidr(config: ClusterConfig) -> Json:
    return {"metadata": {"name": DEFAULT}, "spec": {"cidrs": [str(network) for network in config.service_cidrs]}}


def validate_service_cidr(obj: Json, old: Json | None) -> list[Cause]:
    """One or two canonical CIDRs of different families, each immutable."""
    cidrs = _cidrs(obj)
    if old is None:
        return [*validate_meta(obj, formats.dns_subdomain, namespaced=False), *_ranges(cidrs)]
    causes = [*validate_meta_update(old, obj), *validate_meta(obj, formats.dns_subdomain, namespaced=False)]
    before = _cidrs(old)
    if len(before) != len(cidrs) and (len(before), len(cidrs)) != (1, 2):
        return [*causes, immutable(CIDRS, cidrs, IMMUTABLE)]
    pairs = enumerate(zip(before, cidrs, strict=False))
    causes += [immutable(f"{CIDRS}[{index}]", new, IMMUTABLE) for index, (was, new) in pairs if was != new]
    return causes + (_ranges(cidrs) if len(before) < len(cidrs) else [])


def _cidrs(obj: Json) -> list[str]:
    cidrs: list[str] = (obj.get("spec") or {}).get("cidrs") or []
    return cidrs


def _ranges(cidrs: list[str]) -> list[Cause]:
    if not cidrs:
        return [required(CIDRS, "at least one CIDR required")]
    if len(cidrs) > 2:
        return [invalid_value(CIDRS, {"CIDRs": cidrs}, "may only hold up to 2 values")]
    rows = [(f"{CIDRS}[{index}]", cidr) for index, cidr in enumerate(cidrs)]
    causes = [cause for path, cidr in rows for cause in invalid_values(path, cidr, _cidr_problems(cidr))]
    if len(cidrs) == 2 and {_version(cidr) for cidr in cidrs} in ({4}, {6}):
        causes.append(invalid_value(CIDRS, cidrs, ONE_EACH))
    return causes


def _version(cidr: str) -> int:
    return 0 if formats.NOT_A_CIDR in formats.cidr_problems(cidr) else ip_network(cidr, strict=False).version


def _cidr_problems(cidr: str) -> list[str]:
    problems = formats.cidr_problems(cidr)
    if problems or str(ip_network(cidr)) == cidr:
        return problems
    return [f'must be in canonical form ("{ip_network(cidr)}")']


def validate_ip_address(obj: Json, old: Json | None) -> list[Cause]:
    """The name is a canonical address, and parentRef does not change."""
    meta = validate_meta(obj, formats.canonical_ip_problems, namespaced=False)
    if old is None:
        return [*meta, *_parent(obj)]
    causes = [*meta, *_parent(obj), *validate_meta_update(old, obj)]
    if parent_of(obj) != parent_of(old):
        has_parent = (obj.get("spec") or {}).get("parentRef") is not None
        parent = {name.capitalize(): parent_of(obj).get(name) or "" for name in _PARENT}
        causes.append(immutable("spec.parentRef", parent if has_parent else None, IMMUTABLE))
    return causes


_PARENT = ("group", "resource", "namespace", "name")


def _parent(obj: Json) -> list[Cause]:
    if (obj.get("spec") or {}).get("parentRef") is None:
        return [required("spec.parentRef")]
    parent, causes = parent_of(obj), []
    if parent.get("group"):
        causes += invalid_values("spec.parentRef.group", parent["group"], formats.dns_subdomain(parent["group"]))
    for name in ("resource", "name"):
        if not parent.get(name):
            causes.append(required(f"spec.parentRef.{name}"))
        else:
            causes += invalid_values(f"spec.parentRef.{name}", parent[name], formats.path_segment(parent[name]))
    if parent.get("namespace"):
        causes += invalid_values(
            "spec.parentRef.namespace", parent["namespace"], formats.path_segment(parent["namespace"])
        )
    return causes


def ip_address_of(service: Key, name: str) -> Json:
    labels = {FAMILY_LABEL: address_family(name), MANAGED_BY: ALLOCATOR}
    parent = {"resource": "services", "namespace": service[0], "name": service[1]}
    return {
        "kind": IP_ADDRESS.kind,
        "apiVersion": IP_ADDRESS.api_version,
        "metadata": {"name": name, "labels": labels},
        "spec": {"parentRef": parent},
    }


def names_of(service: Json) -> set[str]:
    return {str(address) for address in held_addresses(spec_of(service))}


def is_managed(obj: Json) -> bool:
    return bool((obj["metadata"].get("labels") or {}).get(MANAGED_BY) == ALLOCATOR)


def parent_of(obj: Json) -> Json:
    parent: Json = (obj.get("spec") or {}).get("parentRef") or {}
    return parent


def service_of(obj: Json) -> Key | None:
    """The Service that has the address; None for another parent."""
    parent = parent_of(obj)
    if parent.get("group") or parent.get("resource") != "services":
        return None
    return parent.get("namespace") or "", parent.get("name") or ""
