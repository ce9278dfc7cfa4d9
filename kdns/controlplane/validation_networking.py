"""The rules of ServiceCIDR and IPAddress (as in kube-apiserver's validation of networking.k8s.io)."""

from __future__ import annotations

from ipaddress import ip_network

from kdns.controlplane import formats
from kdns.controlplane.causes import each, invalid_value, required
from kdns.controlplane.ipaddresses import parent_of
from kdns.controlplane.kinds import Json
from kdns.controlplane.status import Cause
from kdns.controlplane.validation import IMMUTABLE, validate_meta, validate_meta_update

CIDRS = "spec.cidrs"
ONE_EACH = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"


def validate_service_cidr(obj: Json, old: Json | None) -> list[Cause]:
    """One or two canonical ranges of different families, fixed once they are there."""
    cidrs = _cidrs(obj)
    if old is None:
        return [*validate_meta(obj, formats.dns_subdomain, namespaced=False), *_ranges(cidrs)]
    causes = [*validate_meta_update(old, obj), *validate_meta(obj, formats.dns_subdomain, namespaced=False)]
    before = _cidrs(old)
    if len(before) > len(cidrs):
        return [*causes, invalid_value(CIDRS, cidrs, IMMUTABLE)]
    pairs = enumerate(zip(before, cidrs, strict=False))
    causes += [invalid_value(f"{CIDRS}[{index}]", new, IMMUTABLE) for index, (was, new) in pairs if was != new]
    return causes + (_ranges(cidrs) if len(before) < len(cidrs) else [])


def _cidrs(obj: Json) -> list[str]:
    found: list[str] = (obj.get("spec") or {}).get("cidrs") or []
    return found


def _ranges(cidrs: list[str]) -> list[Cause]:
    if not cidrs:
        return [required(CIDRS, "at least one CIDR required")]
    if len(cidrs) > 2:
        return [invalid_value(CIDRS, {"CIDRs": cidrs}, "may only hold up to 2 values")]
    if len(cidrs) == 2 and {_version(cidr) for cidr in cidrs} != {4, 6}:
        return [invalid_value(CIDRS, {"CIDRs": cidrs}, ONE_EACH)]
    rows = [(f"{CIDRS}[{index}]", cidr) for index, cidr in enumerate(cidrs)]
    return [cause for path, cidr in rows for cause in each(path, cidr, _cidr_problems(cidr))]


def _version(cidr: str) -> int:
    return 0 if formats.cidr_problems(cidr, strict=False) else ip_network(cidr, strict=False).version


def _cidr_problems(cidr: str) -> list[str]:
    problems = formats.cidr_problems(cidr)
    if problems or str(ip_network(cidr)) == cidr:
        return problems
    return [f'must be in canonical form ("{ip_network(cidr)}")']


def validate_ip_address(obj: Json, old: Json | None) -> list[Cause]:
    """A canonical address as its name, and whose it is, for ever."""
    meta = validate_meta(obj, formats.canonical_ip_problems, namespaced=False)
    if old is None:
        return [*meta, *_parent(obj)]
    causes = [*meta, *_parent(obj), *validate_meta_update(old, obj)]
    if parent_of(obj) != parent_of(old):
        parent = {name.capitalize(): parent_of(obj).get(name) or "" for name in _PARENT}
        causes.append(invalid_value("spec.parentRef", parent, IMMUTABLE))
    return causes


_PARENT = ("group", "resource", "namespace", "name")


def _parent(obj: Json) -> list[Cause]:
    if (obj.get("spec") or {}).get("parentRef") is None:
        return [required("spec.parentRef")]
    parent, causes = parent_of(obj), []
    if parent.get("group"):
        causes += each("spec.parentRef.group", parent["group"], formats.dns_subdomain(parent["group"]))
    for name in ("resource", "name"):
        if not parent.get(name):
            causes.append(required(f"spec.parentRef.{name}"))
        else:
            causes += each(f"spec.parentRef.{name}", parent[name], formats.path_segment(parent[name]))
    if parent.get("namespace"):
        causes += each("spec.parentRef.namespace", parent["namespace"], formats.path_segment(parent["namespace"]))
    return causes
