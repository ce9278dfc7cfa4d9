"""clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy: what they may be, and how they may change."""

from __future__ import annotations

from kdns.controlplane import formats
from kdns.controlplane.causes import duplicate, each, forbidden, invalid_value, required, unsupported
from kdns.controlplane.kinds import Json
from kdns.controlplane.services import (
    EXTERNAL_NAME,
    NONE,
    PREFER,
    REQUIRE,
    SINGLE,
    address_family,
    cluster_ips,
    ip_families,
    is_headless,
    needs_health_check,
    spec_of,
    type_of,
)
from kdns.controlplane.status import Cause
from kdns.controlplane.validation import GATES, IMMUTABLE, ONCE_SET, Gates

FAMILIES = ("IPv4", "IPv6")


def validate_ip_fields(service: Json, old: Json | None, gates: Gates = GATES) -> list[Cause]:
    """The four fields against each other; ExternalName Services have other rules."""
    if type_of(service) == EXTERNAL_NAME:
        return []
    ips, families = cluster_ips(service), ip_families(service)
    causes = _in_step(spec_of(service).get("clusterIP") or "", ips)
    for index, family in enumerate(families):
        path = f"spec.ipFamilies[{index}]"
        causes += [] if family in FAMILIES else [unsupported(path, family, FAMILIES)]
        causes += [duplicate(path, family)] if family in families[:index] else []
    policy = spec_of(service).get("ipFamilyPolicy")
    if policy is not None and policy not in {SINGLE, PREFER, REQUIRE}:
        causes.append(unsupported("spec.ipFamilyPolicy", policy, (SINGLE, PREFER, REQUIRE)))
    bad = _addresses(ips, cluster_ips(old) if old else [], gates)
    causes += bad
    if len(ips) > 2:
        causes.append(invalid_value("spec.clusterIPs", ips, "may only hold up to 2 values"))
    if bad:
        return causes
    found = [address_family(ip) for ip in ips]
    if len(ips) > 1 and len(set(found)) < 2:
        causes.append(invalid_value("spec.clusterIPs", ips, "may specify no more than one IP for each IP family"))
    if not is_headless(service):
        for index, (ip, is_family, family) in enumerate(zip(ips, found, families, strict=False)):
            if family in FAMILIES and is_family != family:
                detail = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
                causes.append(invalid_value(f"spec.clusterIPs[{index}]", ip, detail))
    return causes


def _in_step(ip: str, ips: list[str]) -> list[Cause]:
    path = "spec.clusterIPs"
    if not ip:
        return [invalid_value(path, ips, "must be empty when `clusterIP` is not specified")] if ips else []
    if not ips:
        return [required(path)]
    return [] if ips[0] == ip else [invalid_value(path, ips, "first value must match `clusterIP`")]


def _addresses(ips: list[str], kept: list[str], gates: Gates) -> list[Cause]:
    causes = []
    for index, ip in enumerate(ips):
        if index or ip != NONE:
            wrong = formats.ip_problems(ip, kept, strict=gates.strict_ips)
            causes += each(f"spec.clusterIPs[{index}]", ip, wrong)
        elif len(ips) > 1:
            causes.append(invalid_value("spec.clusterIPs", ips, "'None' must be the first and only value"))
    return causes


def validate_ip_changes(service: Json, old: Json) -> list[Cause]:
    """The first address and family are for life, the second may come and go; ExternalName starts afresh."""
    if EXTERNAL_NAME in {type_of(service), type_of(old)}:
        return []
    causes: list[Cause] = []
    if not (is_headless(service) and is_headless(old)):
        causes += _list_changes(service, "clusterIPs", "clusterIP", cluster_ips(old), cluster_ips(service))
    if not is_headless(service):
        causes += _list_changes(service, "ipFamilies", "ipFamily", ip_families(old), ip_families(service))
    return causes


def _list_changes(service: Json, field: str, one: str, before: list[str], after: list[str]) -> list[Cause]:
    """Causes as kube-apiserver words them, down to which index and which list it shows for families."""
    path = f"spec.{field}"
    if len(before) == len(after):
        at = 0 if field == "ipFamilies" else 1
        rows = enumerate(zip(before, after, strict=True))
        return [invalid_value(f"{path}[{index * at}]", after, ONCE_SET) for index, (a, b) in rows if a != b]
    if not after:
        return [invalid_value(f"{path}[0]", None, f"primary {one} can not be unset")]
    shown = cluster_ips(service) if len(after) < len(before) else after
    causes = [invalid_value(f"{path}[0]", shown, ONCE_SET)] if before and before[0] != after[0] else []
    policy = spec_of(service).get("ipFamilyPolicy")
    if len(after) < len(before) and len(after) == 1 and policy != SINGLE:
        detail = f"must be set to 'SingleStack' when releasing the secondary {one}"
        causes.append(invalid_value("spec.ipFamilyPolicy", policy, detail))
    return causes


def validate_health_check_change(service: Json, old: Json) -> list[Cause]:
    """HealthCheckNodePort stays while it is needed."""
    same = spec_of(old).get("healthCheckNodePort") == spec_of(service).get("healthCheckNodePort")
    if same or not (needs_health_check(old) and needs_health_check(service)):
        return []
    return [forbidden("spec.healthCheckNodePort", IMMUTABLE)]
