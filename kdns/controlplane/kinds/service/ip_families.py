"""clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy of a Service: their defaults and rules.

They are filled in before addresses are allocated (kube-apiserver: alloc.go, initIPFamilyFields). A policy never changes
by itself: the client or the stored object decides between single-stack and dual-stack.
"""

from __future__ import annotations

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause, StatusError, invalid
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
    is_headless,
    other_family,
    same,
    spec_of,
)
from kdns.controlplane.kinds.validation import ONCE_SET

POLICY = "spec.ipFamilyPolicy"
FAMILIES = ("IPv4", "IPv6")


def fill_families(service: Json, old: Json | None, configured: tuple[str, ...]) -> None:
    """Sets policy and families of a Service before it is stored; `configured` has the default family first.

    Raises 422 if the fields contradict each other or the cluster.
    """
    spec, stored = service["spec"], spec_of(old) if old else None
    if spec["type"] == EXTERNAL_NAME or (stored is not None and _still_prefers_dual_stack(spec, stored)):
        return
    needs_no_ranges = spec.get("clusterIP") == NONE and not spec.get("selector")  # an empty one counts as none
    policy = spec.get("ipFamilyPolicy")
    if policy is None:
        policy = spec["ipFamilyPolicy"] = (stored or {}).get("ipFamilyPolicy") or (
            REQUIRE if needs_no_ranges else SINGLE
        )
    if causes := validate_ip_fields(spec, stored):
        raise _invalid(service, causes)
    causes = [] if stored is None else _trim(spec, stored)
    families: list[str] = []
    if spec.get("clusterIPs") or spec.get("ipFamilies"):
        causes += _single_with_two(spec) if policy == SINGLE else []
        families, more = _families(spec, configured)
        causes += more
    if causes:
        raise _invalid(service, causes)
    grow = policy != SINGLE
    if not needs_no_ranges:
        if (families or policy == REQUIRE) and (causes := _not_configured(policy, families, configured)):
            raise _invalid(service, causes)
        grow = grow and len(configured) == 2
    families = families or [configured[0]]
    spec["ipFamilies"] = [*families, other_family(families[0])] if grow and len(families) == 1 else families


def _invalid(service: Json, causes: list[Cause]) -> StatusError:
    return invalid(SERVICE, service["metadata"].get("name", ""), causes)


def _still_prefers_dual_stack(spec: Json, old: Json) -> bool:
    """A change of the cluster does not affect an unchanged PreferDualStack Service."""
    prefers = spec.get("ipFamilyPolicy") == old.get("ipFamilyPolicy") == PREFER
    return prefers and all(same(old, spec, field) for field in ("type", "clusterIPs", "ipFamilies"))


def _trim(spec: Json, old: Json) -> list[Cause]:
    """Drops an unchanged second address or family under SingleStack; under other policies that is an error."""
    causes = []
    policy = spec["ipFamilyPolicy"]
    for field, what in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        before, after = old.get(field) or [], spec.get(field) or []
        if policy == SINGLE:
            if before == after and len(after) > 1:
                spec[field] = after[:1]
        elif after and len(after) < len(before):
            causes.append(invalid_value(POLICY, policy, f"must be 'SingleStack' to release the secondary {what}"))
    return causes


def _single_with_two(spec: Json) -> list[Cause]:
    rows = (("cluster IPs", "clusterIPs"), ("IP families", "ipFamilies"))
    detail = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
    return [invalid_value(POLICY, SINGLE, detail.format(what)) for what, name in rows if len(spec.get(name) or ()) == 2]


def _families(spec: Json, configured: tuple[str, ...]) -> tuple[list[str], list[Cause]]:
    """The sent families, with those of further addresses, and a cause for each that is not configured."""
    causes, families, addresses = [], list(spec.get("ipFamilies") or ()), spec.get("clusterIPs") or []
    for index, address in enumerate(addresses):
        if address == NONE:
            break
        if index < len(families):
            continue
        family = address_family(address)
        if family in configured:
            families.append(family)
        else:
            detail = f"{family} is not configured on this cluster"
            causes.append(invalid_value(f"spec.clusterIPs[{index}]", addresses, detail))
    return families, causes


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
    """Adds the plural fields that old releases did not store; an ExternalName has no families."""
    spec = spec_of(service)
    if spec.get("type") == EXTERNAL_NAME:
        if "internalTrafficPolicy" not in spec:
            return service
        return {**service, "spec": {key: value for key, value in spec.items() if key != "internalTrafficPolicy"}}
    if spec.get("ipFamilies") and spec.get("clusterIPs"):
        return service
    ips = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
    if ips == [NONE]:
        families = [configured[0]] if spec.get("selector") else [configured[0], other_family(configured[0])]
    else:
        families = [address_family(ip) for ip in ips]
    filled = {
        "clusterIPs": ips,
        "ipFamilies": spec.get("ipFamilies") or families,
        "ipFamilyPolicy": spec.get("ipFamilyPolicy") or (REQUIRE if len(families) > 1 else SINGLE),
    }
    return {**service, "spec": {**spec, **{key: value for key, value in filled.items() if value}}} if ips else service


def validate_ip_fields(spec: Json, old: Json | None) -> list[Cause]:
    """Checks the consistency of the four fields; ExternalName Services have other rules."""
    if spec.get("type") == EXTERNAL_NAME:
        return []
    ips, families, policy = spec.get("clusterIPs") or [], spec.get("ipFamilies") or [], spec.get("ipFamilyPolicy")
    causes = _in_step(spec.get("clusterIP") or "", ips) if ips or spec.get("clusterIP") else []
    for index, family in enumerate(families):
        path = f"spec.ipFamilies[{index}]"
        causes += [] if family in FAMILIES else [unsupported(path, family, FAMILIES)]
        causes += [duplicate(path, family)] if family in families[:index] else []
    if policy is not None and policy not in {SINGLE, PREFER, REQUIRE}:
        causes.append(unsupported("spec.ipFamilyPolicy", policy, (PREFER, REQUIRE, SINGLE)))
    if not ips:
        return causes
    bad = _addresses(ips, (old.get("clusterIPs") or []) if old else [])
    causes += bad
    if len(ips) > 2:
        causes.append(invalid_value("spec.clusterIPs", ips, "may only hold up to 2 values"))
    if bad:
        return causes
    ip_families = [address_family(ip) for ip in ips]
    if len(ips) > 1 and len(set(ip_families)) < 2:
        causes.append(invalid_value("spec.clusterIPs", ips, "may specify no more than one IP for each IP family"))
    if not is_headless(spec):
        for index, (ip, ip_family, family) in enumerate(zip(ips, ip_families, families, strict=False)):
            if family in FAMILIES and ip_family != family:
                detail = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
                causes.append(invalid_value(f"spec.clusterIPs[{index}]", ip, detail))
    return causes


def _in_step(ip: str, ips: list[str]) -> list[Cause]:
    path = "spec.clusterIPs"
    if not ip:
        return [invalid_value(path, ips, "must be empty when `clusterIP` is not specified")]
    if not ips:
        return [required(path)]
    return [] if ips[0] == ip else [invalid_value(path, ips, "first value must match `clusterIP`")]


def _addresses(ips: list[str], stored: list[str]) -> list[Cause]:
    causes = []
    for index, ip in enumerate(ips):
        if index or ip != NONE:
            wrong = formats.ip_problems(ip, stored)
            causes += invalid_values(f"spec.clusterIPs[{index}]", ip, wrong)
        elif len(ips) > 1:
            causes.append(invalid_value("spec.clusterIPs", ips, "'None' must be the first and only value"))
    return causes


def validate_ip_changes(spec: Json, old: Json) -> list[Cause]:
    """The first address and family may change only from or to ExternalName."""
    if EXTERNAL_NAME in {spec.get("type"), old.get("type")}:
        return []
    causes: list[Cause] = []
    if not (is_headless(spec) and is_headless(old)):
        causes += _list_changes(spec, old, "clusterIPs", "clusterIP")
    if not is_headless(spec):
        causes += _list_changes(spec, old, "ipFamilies", "ipFamily")
    return causes


def _list_changes(spec: Json, old: Json, field: str, singular: str) -> list[Cause]:
    """Indexes and values are those that kube-apiserver reports."""
    path, before, after = f"spec.{field}", old.get(field) or [], spec.get(field) or []
    if len(before) == len(after):
        at = 0 if field == "ipFamilies" else 1
        rows = enumerate(zip(before, after, strict=True))
        return [immutable(f"{path}[{index * at}]", after, ONCE_SET) for index, (a, b) in rows if a != b]
    if not after:
        return [invalid_value(f"{path}[0]", None, f"primary {singular} can not be unset")]
    shown = (spec.get("clusterIPs") or []) if len(after) < len(before) else after
    causes = [immutable(f"{path}[0]", shown, ONCE_SET)] if before and before[0] != after[0] else []
    policy = spec.get("ipFamilyPolicy")
    if len(after) < len(before) and len(after) == 1 and policy != SINGLE:
        detail = f"must be set to 'SingleStack' when releasing the secondary {singular}"
        causes.append(invalid_value("spec.ipFamilyPolicy", policy, detail))
    return causes
