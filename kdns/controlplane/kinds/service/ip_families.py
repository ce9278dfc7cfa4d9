"""clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy of a Service: their defaults and rules.

They are filled in before addresses are allocated (kube-apiserver: alloc.go, initIPFamilyFields). A policy never
changes by itself: the client or the stored object decides between single-stack and dual-stack.
"""

from __future__ import annotations

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause, invalid
from kdns.controlplane.apimachinery.field_errors import (
    duplicate,
    immutable,
    invalid_value,
    invalid_values,
    required,
    unsupported,
)
from kdns.controlplane.apimachinery.kinds import SERVICE, Json
from kdns.controlplane.kinds.service.spec import (
    EXTERNAL_NAME,
    NONE,
    PREFER,
    REQUIRE,
    SINGLE,
    address_family,
    cluster_ips,
    ip_families,
    is_headless,
    is_selectorless,
    needs_cluster_ip,
    other_family,
    same,
    spec_of,
    type_of,
)
from kdns.controlplane.kinds.validation import ONCE_SET

POLICY = "spec.ipFamilyPolicy"
FAMILIES = ("IPv4", "IPv6")


def fill_families(service: Json, old: Json | None, configured: tuple[str, ...]) -> None:
    """Sets policy and families of a Service before it is stored; `configured` has the default family first.

    Raises 422 if the fields contradict each other or the cluster.
    """
    if type_of(service) == EXTERNAL_NAME or (old and _still_prefers_dual_stack(service, old)):
        return
    spec = spec_of(service)
    if spec.get("ipFamilyPolicy") is None:
        spec["ipFamilyPolicy"] = _default_policy(service, old)
    _refuse(service, validate_ip_fields(service, old))
    causes = _trim(service, old) if old else []
    causes += _single_with_two(service)
    causes += _infer(service, configured)
    _refuse(service, causes)
    policy, families = spec["ipFamilyPolicy"], ip_families(service)
    if spec.get("clusterIP") == NONE and is_selectorless(service):
        families = families or [configured[0]]
        grow = policy != SINGLE
    else:
        _refuse(service, _not_configured(policy, families, configured))
        families = families or [configured[0]]
        grow = policy != SINGLE and len(configured) == 2
    spec["ipFamilies"] = [*families, other_family(families[0])] if grow and len(families) == 1 else families


def _refuse(service: Json, causes: list[Cause]) -> None:
    if causes:
        raise invalid(SERVICE, (service.get("metadata") or {}).get("name", ""), causes)


def _still_prefers_dual_stack(service: Json, old: Json) -> bool:
    """Returns whether a PreferDualStack Service is unchanged: then a change of the cluster does not affect it."""
    prefers = spec_of(service).get("ipFamilyPolicy") == spec_of(old).get("ipFamilyPolicy") == PREFER
    fields = ("type", "clusterIPs", "ipFamilies")
    return prefers and all(same(old, service, field) for field in fields)


def _default_policy(service: Json, old: Json | None) -> str:
    stored: str | None = spec_of(old).get("ipFamilyPolicy") if old else None
    if stored:
        return stored
    return REQUIRE if spec_of(service).get("clusterIP") == NONE and is_selectorless(service) else SINGLE


def _trim(service: Json, old: Json) -> list[Cause]:
    """Drops an unchanged second address or family under SingleStack; other policies make that an error."""
    spec, causes = spec_of(service), []
    policy = spec["ipFamilyPolicy"]
    for field, what in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        before, after = spec_of(old).get(field) or [], spec.get(field) or []
        if policy == SINGLE:
            if before == after and len(after) > 1:
                spec[field] = after[:1]
        elif after and len(after) < len(before):
            causes.append(invalid_value(POLICY, policy, f"must be 'SingleStack' to release the secondary {what}"))
    return causes


def _single_with_two(service: Json) -> list[Cause]:
    policy = spec_of(service)["ipFamilyPolicy"]
    if policy != SINGLE:
        return []
    rows = (("cluster IPs", cluster_ips(service)), ("IP families", ip_families(service)))
    detail = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
    return [invalid_value(POLICY, policy, detail.format(what)) for what, values in rows if len(values) == 2]


def _infer(service: Json, configured: tuple[str, ...]) -> list[Cause]:
    """Sets the families of the given addresses."""
    causes, families = [], list(ip_families(service))
    for index, address in enumerate(cluster_ips(service)):
        if address == NONE:
            break
        family = address_family(address)
        if index < len(families):
            continue
        if family in configured:
            families.append(family)
        else:
            detail = f"{family} is not configured on this cluster"
            causes.append(invalid_value(f"spec.clusterIPs[{index}]", cluster_ips(service), detail))
    if families:
        spec_of(service)["ipFamilies"] = families
    return causes


def _not_configured(policy: str, families: list[str], configured: tuple[str, ...]) -> list[Cause]:
    causes = []
    if policy == REQUIRE and len(configured) < 2:
        causes.append(invalid_value(POLICY, policy, "this cluster is not configured for dual-stack services"))
    return causes + [
        invalid_value(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
        for index, family in enumerate(families)
        if family not in configured
    ]


def fill_on_read(service: Json, configured: tuple[str, ...]) -> Json:
    """Returns the Service with the plural fields that old versions did not store; an ExternalName has no families."""
    spec = spec_of(service)
    if type_of(service) == EXTERNAL_NAME:
        if "internalTrafficPolicy" not in spec:
            return service
        return {**service, "spec": {key: value for key, value in spec.items() if key != "internalTrafficPolicy"}}
    if not needs_cluster_ip(service) or (spec.get("ipFamilies") and spec.get("clusterIPs")):
        return service
    ips = cluster_ips(service) or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
    if ips == [NONE]:
        families = [configured[0], other_family(configured[0])] if is_selectorless(service) else [configured[0]]
    else:
        families = [address_family(ip) for ip in ips]
    filled = {
        "clusterIPs": ips,
        "ipFamilies": spec.get("ipFamilies") or families,
        "ipFamilyPolicy": spec.get("ipFamilyPolicy") or (REQUIRE if len(families) > 1 else SINGLE),
    }
    return {**service, "spec": {**spec, **{key: value for key, value in filled.items() if value}}} if ips else service


def validate_ip_fields(service: Json, old: Json | None) -> list[Cause]:
    """Checks the consistency of the four fields; ExternalName Services have other rules."""
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
        causes.append(unsupported("spec.ipFamilyPolicy", policy, (PREFER, REQUIRE, SINGLE)))
    bad = _addresses(ips, cluster_ips(old) if old else [])
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


def _addresses(ips: list[str], kept: list[str]) -> list[Cause]:
    causes = []
    for index, ip in enumerate(ips):
        if index or ip != NONE:
            wrong = formats.ip_problems(ip, kept)
            causes += invalid_values(f"spec.clusterIPs[{index}]", ip, wrong)
        elif len(ips) > 1:
            causes.append(invalid_value("spec.clusterIPs", ips, "'None' must be the first and only value"))
    return causes


def validate_ip_changes(service: Json, old: Json) -> list[Cause]:
    """Checks that the first address and family do not change, except from or to ExternalName."""
    if EXTERNAL_NAME in {type_of(service), type_of(old)}:
        return []
    causes: list[Cause] = []
    if not (is_headless(service) and is_headless(old)):
        causes += _list_changes(service, "clusterIPs", "clusterIP", cluster_ips(old), cluster_ips(service))
    if not is_headless(service):
        causes += _list_changes(service, "ipFamilies", "ipFamily", ip_families(old), ip_families(service))
    return causes


def _list_changes(service: Json, field: str, one: str, before: list[str], after: list[str]) -> list[Cause]:
    """Returns causes with the index and value that kube-apiserver reports."""
    path = f"spec.{field}"
    if len(before) == len(after):
        at = 0 if field == "ipFamilies" else 1
        rows = enumerate(zip(before, after, strict=True))
        return [immutable(f"{path}[{index * at}]", after, ONCE_SET) for index, (a, b) in rows if a != b]
    if not after:
        return [invalid_value(f"{path}[0]", None, f"primary {one} can not be unset")]
    shown = cluster_ips(service) if len(after) < len(before) else after
    causes = [immutable(f"{path}[0]", shown, ONCE_SET)] if before and before[0] != after[0] else []
    policy = spec_of(service).get("ipFamilyPolicy")
    if len(after) < len(before) and len(after) == 1 and policy != SINGLE:
        detail = f"must be set to 'SingleStack' when releasing the secondary {one}"
        causes.append(invalid_value("spec.ipFamilyPolicy", policy, detail))
    return causes
