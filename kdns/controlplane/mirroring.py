"""EndpointSlices of hand-written Endpoints, so that readers need to know slices only (endpointslicemirroring)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdns.controlplane.endpointpods import SERVICE_NAME, TRIGGER_TIME
from kdns.controlplane.endpointslices import MANAGED_BY, PortKey, SlicePlan, is_owned, owner_reference, port_key
from kdns.controlplane.kinds import Json
from kdns.controlplane.services import address_family, spec_of

CONTROLLER = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
PER_SUBSET = 1000


def is_mirrored(endpoints: Json, service: Json | None) -> bool:
    """Whether the Endpoints are somebody's own: of a Service without selector, not opted out, no leader's lock."""
    meta = endpoints["metadata"]
    opted_out = (meta.get("labels") or {}).get(SKIP) == "true" or LEADER in (meta.get("annotations") or {})
    return service is not None and spec_of(service).get("selector") is None and not opted_out


def plan_mirror(endpoints: Json, existing: Sequence[Json], trigger: str) -> SlicePlan:
    """The writes that bring `existing`, the mirrored slices, to what the Endpoints say.

    Each subset and family has one slice; addresses beyond 1,000 per subset are left out.
    """
    plan = SlicePlan()
    left = [each for each in existing if is_owned(each, endpoints)]
    plan.delete.extend(each for each in existing if each not in left)
    for wanted in _slices(endpoints, trigger):
        same = next((each for each in left if _key(each) == _key(wanted)), None)
        if same is None:
            plan.create.append(wanted)
            continue
        left.remove(same)
        if _content(same) != _content(wanted):
            plan.update.append({**same, **wanted, "metadata": _merged(same["metadata"], wanted["metadata"])})
    plan.delete.extend(left)
    return plan


def _key(each: Json) -> tuple[str, PortKey]:
    return each["addressType"], port_key(each.get("ports"))


def _content(each: Json) -> tuple[object, ...]:
    meta = each["metadata"]
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key != TRIGGER_TIME}
    return each.get("endpoints") or [], meta.get("labels") or {}, annotations


def _merged(old: Json, new: Json) -> Json:
    return {**old, "labels": new["labels"], "annotations": new["annotations"]}


def _slices(endpoints: Json, trigger: str) -> list[Json]:
    meta = endpoints["metadata"]
    annotations = {
        key: value for key, value in (meta.get("annotations") or {}).items() if key not in {TRIGGER_TIME, LAST_APPLIED}
    }
    labels = {**(meta.get("labels") or {}), SERVICE_NAME: meta["name"], MANAGED_BY: CONTROLLER}
    metadata: Json = {
        "generateName": f"{meta['name']}-",
        "namespace": meta.get("namespace", ""),
        "labels": labels,
        "annotations": {**annotations, **({TRIGGER_TIME: trigger} if trigger else {})},
        "ownerReferences": [owner_reference("Endpoints", endpoints)],
    }
    grouped: dict[tuple[str, PortKey], Json] = {}
    for subset in endpoints.get("subsets") or []:
        ports = [{"name": "", "protocol": "TCP", **port} for port in subset.get("ports") or []]
        for family, endpoint in list(_endpoints(subset))[:PER_SUBSET]:
            fresh: Json = {"metadata": {**metadata}, "addressType": family, "endpoints": [], "ports": ports}
            made = grouped.setdefault((family, port_key(ports)), fresh)
            if endpoint not in made["endpoints"]:
                made["endpoints"].append(endpoint)
    kind = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice"}
    return [{**kind, **made} for made in grouped.values()]


def _endpoints(subset: Json) -> Iterator[tuple[str, Json]]:
    for field, ready in (("addresses", True), ("notReadyAddresses", False)):
        for address in subset.get(field) or []:
            copied = {key: address[key] for key in ("hostname", "nodeName", "targetRef") if address.get(key)}
            family = address_family(address.get("ip") or "")
            if family:
                yield family, {"addresses": [address["ip"]], "conditions": {"ready": ready}, **copied}
