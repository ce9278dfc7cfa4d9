"""ipFamilyPolicy and ipFamilies of a Service, filled in before addresses are allocated (alloc.go initIPFamilyFields).

Policies never change by themselves: single-stack and dual-stack are what the client or the stored object said.
"""

from __future__ import annotations

from kdns.controlplane.causes import invalid_value
from kdns.controlplane.kinds import SERVICE, Json
from kdns.controlplane.services import (
    EXTERNAL_NAME,
    NONE,
    PREFER,
    REQUIRE,
    SINGLE,
    address_family,
    cluster_ips,
    ip_families,
    is_selectorless,
    needs_cluster_ip,
    other_family,
    same,
    spec_of,
    type_of,
)
from kdns.controlplane.status import Cause, invalid
from kdns.controlplane.validation_families import validate_ip_fields

POLICY = "spec.ipFamilyPolicy"


def fill_families(service: Json, old: Json | None, configured: tuple[str, ...]) -> None:
    """Set policy and families of a Service that is about to be written; `configured` has the default family first.

    Raises StatusError 422 where the fields contradict each other or the cluster.
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
    """A PreferDualStack Service that says what it said is left alone, whatever became of the cluster."""
    prefers = spec_of(service).get("ipFamilyPolicy") == spec_of(old).get("ipFamilyPolicy") == PREFER
    fields = ("type", "clusterIPs", "ipFamilies")
    return prefers and all(same(old, service, field) for field in fields)


def _default_policy(service: Json, old: Json | None) -> str:
    stored: str | None = spec_of(old).get("ipFamilyPolicy") if old else None
    if stored:
        return stored
    return REQUIRE if spec_of(service).get("clusterIP") == NONE and is_selectorless(service) else SINGLE


def _trim(service: Json, old: Json) -> list[Cause]:
    """SingleStack drops an unchanged second address or family; other policies may not lose theirs."""
    spec, causes = spec_of(service), []
    policy = spec["ipFamilyPolicy"]
    for field, what in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        before, after = spec_of(old).get(field) or [], spec.get(field) or []
        if policy == SINGLE:
            if before == after and len(after) > 1:
                spec[field] = after[:1]
        elif after and len(after) < len(before) and after == before[:1]:
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
    """Families that follow from addresses."""
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
    """The Service as clients see it: plural fields of objects stored without them, none for ExternalName."""
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
