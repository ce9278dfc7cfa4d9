"""The rules of Nodes: taints, and the Pod CIDRs, which are immutable once set."""

from __future__ import annotations

from typing import Final

from kdns.controlplane.meta import formats
from kdns.controlplane.meta.errors import Cause
from kdns.controlplane.meta.field_errors import forbidden, invalid_value, invalid_values, quoted, required, unsupported
from kdns.controlplane.meta.kinds import Json
from kdns.controlplane.resources.validation import validate_meta, validate_meta_update
from kdns.net import parse_address

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PROVIDER_STAYS = 'node updates may not change providerID except from "" to valid'
_CIDRS_STAY = 'node updates may not change podCIDR except from "" to valid'


def validate_node(obj: Json, old: Json | None = None) -> list[Cause]:
    """All violated rules of a Node. The path of taints is in metadata, as kube-apiserver has it."""
    causes = validate_meta_update(old, obj) if old else []
    causes += validate_meta(obj, formats.dns_subdomain, namespaced=False)
    spec: Json = obj.get("spec") or {}
    causes += _taints(spec.get("taints") or []) + _cidrs(pod_cidrs(spec))
    return causes + (_changes(old.get("spec") or {}, spec) if old else [])


def pod_cidrs(spec: Json) -> list[str]:
    """podCIDRs, or podCIDR where the two differ."""
    one, several = spec.get("podCIDR") or "", list(spec.get("podCIDRs") or [])
    return several if not one or several[:1] == [one] else [one]


def _taints(taints: list[Json]) -> list[Cause]:
    causes, known = [], set()
    for index, taint in enumerate(taints):
        path = f"metadata.taints[{index}]"
        key, value, effect = (taint.get(field) or "" for field in ("key", "value", "effect"))
        causes += invalid_values(f"{path}.key", key, formats.qualified_name(key))
        causes += invalid_values(f"{path}.value", value, formats.label_value(value))
        if not effect:
            causes.append(required(f"{path}.effect"))
        elif effect not in EFFECTS:
            causes.append(unsupported(f"{path}.effect", effect, EFFECTS))
        if (key, effect) in known:
            found = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            why = "taints must be unique by key and effect pair"
            causes.append(Cause(path, f"Duplicate value: {quoted(found)}", why))
        known.add((key, effect))
    return causes


def _cidrs(cidrs: list[str]) -> list[Cause]:
    causes = []
    for index, cidr in enumerate(cidrs):
        causes += invalid_values(f"spec.podCIDRs[{index}]", cidr, formats.cidr_problems(cidr, strict=False))
    versions = [ip.version if (ip := parse_address(cidr.partition("/")[0])) else 0 for cidr in cidrs]
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
