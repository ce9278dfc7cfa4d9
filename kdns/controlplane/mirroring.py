"""EndpointSlices of hand-written Endpoints, so that readers need to know slices only (endpointslicemirroring)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kdns.controlplane.endpointpods import SERVICE_NAME, TRIGGER_TIME
from kdns.controlplane.endpointslices import MANAGED_BY, SlicePlan, is_owned, owner_reference, reuse
from kdns.controlplane.formats import parse_ip
from kdns.controlplane.kinds import Json
from kdns.controlplane.services import spec_of
from kdns.controlplane.sliceendpoints import PortKey, port_key
from kdns.controlplane.slicepacking import identity

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


def plan_mirror(endpoints: Json, copied: Copied, existing: Sequence[Json]) -> SlicePlan:
    """The writes that bring `existing`, the mirrored slices, to what the Endpoints say: `copied_endpoints`.

    Each set of ports and family has one slice.
    """
    plan = SlicePlan()
    labels, annotations = _labels(endpoints), _annotations(endpoints)
    spare = [each for each in existing if is_owned(each, "Endpoints", endpoints)]
    plan.delete.extend(each for each in existing if each not in spare)
    for (family, key), wanted in copied.groups.items():
        same = next((each for each in spare if _key(each) == (family, key)), None)
        if not wanted.endpoints:
            continue
        content = {"addressType": family, "endpoints": list(wanted.endpoints.values()), "ports": wanted.ports}
        if same is None:
            plan.create.append(_new(endpoints, labels, annotations) | content)
            continue
        spare.remove(same)
        meta = same["metadata"]
        stored = {identity(each): each for each in same.get("endpoints") or []}
        unchanged = stored == wanted.endpoints and len(stored) == len(same.get("endpoints") or [])
        if not unchanged or (meta.get("labels") or {}) != labels or (meta.get("annotations") or {}) != annotations:
            plan.update.append({**same, **content, "metadata": {**meta, "labels": labels, "annotations": annotations}})
    reused = reuse(plan.create, spare)
    for each in reused.values():
        each["metadata"]["annotations"] = annotations
    plan.update.extend(reused.values())
    plan.delete.extend(each for each in spare if each["metadata"]["name"] not in reused)
    if endpoints["metadata"].get("deletionTimestamp"):
        plan.create.clear()
    return plan


@dataclass(slots=True)
class _Group:
    ports: list[Json]
    endpoints: dict[str, Json] = field(default_factory=dict)


@dataclass(slots=True)
class Copied:
    """Endpoints as those of slices, by family and ports; `invalid` and `skipped` count addresses left out."""

    groups: dict[tuple[str, PortKey], _Group] = field(default_factory=dict)
    invalid: int = 0
    skipped: int = 0


def copied_endpoints(endpoints: Json) -> Copied:
    """What slices of hand-written Endpoints hold: at most 1,000 addresses per subset, and per set of ports."""
    copied = Copied()
    for subset in endpoints.get("subsets") or []:
        ports = [{"name": "", "protocol": "TCP", **port} for port in subset.get("ports") or []]
        addresses = [(one, True) for one in subset.get("addresses") or []]
        addresses += [(one, False) for one in subset.get("notReadyAddresses") or []]
        added = 0
        for address, ready in addresses:
            if added == PER_SUBSET:
                break
            ip = parse_ip(address.get("ip") or "")
            if ip is None:
                copied.invalid += 1
                continue
            added += 1
            fields = {key: address[key] for key in ("hostname", "nodeName", "targetRef") if address.get(key)}
            endpoint = {"addresses": [str(ip)], "conditions": {"ready": ready}, **fields}
            group = copied.groups.setdefault((f"IPv{ip.version}", port_key(ports)), _Group(ports))
            if len(group.endpoints) < PER_SUBSET:
                group.endpoints.setdefault(identity(endpoint), endpoint)
        copied.skipped += len(addresses) - added
    return copied


def left_out(copied: Copied) -> Iterable[tuple[str, str]]:
    """Reason and message of Events about addresses that are not mirrored."""
    if copied.invalid:
        said = f"Skipped {copied.invalid} invalid IP addresses when mirroring to EndpointSlices"
        yield "InvalidIPAddress", said
    if copied.skipped > copied.invalid:
        most = f"A max of {PER_SUBSET} addresses can be mirrored to EndpointSlices per Endpoints subset."
        yield "TooManyAddressesToMirror", f"{most} {copied.skipped} addresses were skipped"


def _key(each: Json) -> tuple[str, PortKey]:
    return each["addressType"], port_key(each.get("ports"))


def _labels(endpoints: Json) -> dict[str, str]:
    meta = endpoints["metadata"]
    return {**(meta.get("labels") or {}), SERVICE_NAME: meta["name"], MANAGED_BY: CONTROLLER}


def _annotations(endpoints: Json) -> dict[str, str]:
    annotations = endpoints["metadata"].get("annotations") or {}
    return {key: value for key, value in annotations.items() if key not in {TRIGGER_TIME, LAST_APPLIED}}


def _new(endpoints: Json, labels: Json, annotations: Json) -> Json:
    meta = endpoints["metadata"]
    metadata: Json = {
        "generateName": f"{meta['name']}-",
        "namespace": meta.get("namespace", ""),
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [owner_reference("Endpoints", endpoints)],
    }
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata}
