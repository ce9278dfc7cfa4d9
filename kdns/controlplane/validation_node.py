"""The rules of a Node: its taints, and the CIDRs of its Pods, which stay as they were first given."""

from __future__ import annotations

from typing import Final

from kdns.controlplane import formats
from kdns.controlplane.causes import each, forbidden, invalid_value, required, shown, unsupported
from kdns.controlplane.formats import parse_ip
from kdns.controlplane.kinds import Json
from kdns.controlplane.status import Cause
from kdns.controlplane.validation import validate_meta, validate_meta_update

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PROVIDER_STAYS = 'node updates may not change providerID except from "" to valid'
_CIDRS_STAY = 'node updates may not change podCIDR except from "" to valid'


def validate_node(obj: Json, old: Json | None = None) -> list[Cause]:
    """Real paths: the taints are said to be in metadata, as kube-apiserver says it."""
    causes = validate_meta_update(old, obj) if old else []
    causes += validate_meta(obj, formats.dns_subdomain, namespaced=False)
    spec: Json = obj.get("spec") or {}
    causes += _taints(spec.get("taints") or []) + _cidrs(pod_cidrs(spec))
    return causes + (_changes(old.get("spec") or {}, spec) if old else [])


def pod_cidrs(spec: Json) -> list[str]:
    """podCIDRs; where podCIDR says something else, it is meant."""
    one, several = spec.get("podCIDR") or "", list(spec.get("podCIDRs") or [])
    return several if not one or several[:1] == [one] else [one]


def _taints(taints: list[Json]) -> list[Cause]:
    causes, known = [], set()
    for index, taint in enumerate(taints):
        path = f"metadata.taints[{index}]"
        key, value, effect = (taint.get(field) or "" for field in ("key", "value", "effect"))
        causes += each(f"{path}.key", key, formats.qualified_name(key))
        causes += each(f"{path}.value", value, formats.label_value(value))
        if not effect:
            causes.append(required(f"{path}.effect"))
        elif effect not in EFFECTS:
            causes.append(unsupported(f"{path}.effect", effect, EFFECTS))
        if (key, effect) in known:
            found = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            why = "taints must be unique by key and effect pair"
            causes.append(Cause(path, f"Duplicate value: {shown(found)}", why))
        known.add((key, effect))
    return causes


def _cidrs(cidrs: list[str]) -> list[Cause]:
    causes = []
    for index, cidr in enumerate(cidrs):
        causes += each(f"spec.podCIDRs[{index}]", cidr, formats.cidr_problems(cidr, strict=False))
    versions = [ip.version if (ip := parse_ip(cidr.partition("/")[0])) else 0 for cidr in cidrs]
    if len(versions) > 1 and sorted(versions) != [4, 6]:
        why = "may specify no more than one CIDR for each IP family"
        causes.append(invalid_value("spec.podCIDRs", cidrs, why))
    return causes


def _changes(old: Json, new: Json) -> list[Cause]:
    causes = []
    if pod_cidrs(old) and pod_cidrs(old) != pod_cidrs(new):
        causes.append(forbidden("spec.podCIDRs", _CIDRS_STAY))
    if old.get("providerID") and old["providerID"] != new.get("providerID"):
        causes.append(forbidden("spec.providerID", _PROVIDER_STAYS))
    return causes
