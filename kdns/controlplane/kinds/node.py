"""Nodes: their columns, and their rules on taints and on Pod CIDRs, which are immutable once set.

Differs: four things are not validated, the annotations that were taints before Kubernetes 1.6, quantities and features
of the status, and a dynamic configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.conditions import condition_of
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import (
    duplicate,
    forbidden,
    invalid_value,
    invalid_values,
    quoted,
    required,
    unsupported,
)
from kdns.controlplane.apimachinery.kinds import NODE, Json, Kind
from kdns.controlplane.kinds.columns import AGE, NAME, NONE, Column, Printer, age, name
from kdns.controlplane.kinds.strategy import NAMED, Strategy, SubresourceStrategy
from kdns.controlplane.kinds.validation import validate_meta, validate_meta_update
from kdns.controlplane.storage.field_selectors import FieldLabels, flag
from kdns.net import parse_address

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE = "kubernetes.io/role"


def node_cells(node: Json, now_s: float) -> list[Any]:
    spec, status = node.get("spec", {}), node.get("status", {})
    system = status.get("nodeInfo", {})
    ready = condition_of(node, "Ready")
    state = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return [
        name(node),
        f"{state},SchedulingDisabled" if spec.get("unschedulable") else state,
        _roles(node.get("metadata", {}).get("labels") or {}),
        age(node, now_s),
        system.get("kubeletVersion", ""),
        _node_address(status, "InternalIP"),
        _node_address(status, "ExternalIP"),
        *(system.get(key) or "<unknown>" for key in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def _roles(labels: Mapping[str, str]) -> str:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return ",".join(sorted((roles | {labels.get(_ROLE, "")}) - {""})) or NONE


def _node_address(status: Json, address_type: str) -> str:
    addresses = status.get("addresses") or ()
    return next((str(row.get("address")) for row in addresses if row.get("type") == address_type), NONE)


_NODES: Final = Printer(
    (
        NAME,
        Column("Status", "Whether the node is ready, and whether it takes new Pods."),
        Column("Roles", "Roles of the node, from its labels node-role.kubernetes.io/ROLE."),
        AGE,
        Column("Version", "status.nodeInfo.kubeletVersion"),
        Column("Internal-IP", "status.addresses", priority=1),
        Column("External-IP", "status.addresses", priority=1),
        Column("OS-Image", "status.nodeInfo.osImage", priority=1),
        Column("Kernel-Version", "status.nodeInfo.kernelVersion", priority=1),
        Column("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", priority=1),
    ),
    node_cells,
)


EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PROVIDER_STAYS = 'node updates may not change providerID except from "" to valid'
_CIDRS_STAY = 'node updates may not change podCIDR except from "" to valid'


def validate_node(obj: Json, old: Json | None = None) -> list[Cause]:
    """The path of taints is in metadata, as in kube-apiserver."""
    spec: Json = obj.get("spec") or {}
    causes = validate_meta(obj, formats.dns_subdomain, namespaced=False) + _taints(spec.get("taints") or [])
    causes += _cidrs(pod_cidrs(spec))
    return causes + (validate_node_update(obj, old) if old else [])


def validate_node_update(obj: Json, old: Json | None) -> list[Cause]:
    old = old or {}
    causes = validate_meta_update(old, obj)
    known: list[Json] = []
    for index, address in enumerate((obj.get("status") or {}).get("addresses") or []):
        if address in known:
            shown = {"Type": address.get("type") or "", "Address": address.get("address") or ""}
            causes.append(duplicate(f"status.addresses[{index}]", shown))
        known.append(address)
    spec: Json = obj.get("spec") or {}
    return causes + _changes(old.get("spec") or {}, spec) + _taints(spec.get("taints") or [])


def default_node(obj: Json) -> Json:
    """Sets podCIDR to the first of podCIDRs; podCIDR wins if they differ."""
    spec = obj.get("spec") or {}
    cidrs = pod_cidrs(spec)
    return {**obj, "spec": {**spec, "podCIDR": cidrs[0], "podCIDRs": cidrs}} if cidrs else obj


def pod_cidrs(spec: Json) -> list[str]:
    first, listed = spec.get("podCIDR") or "", list(spec.get("podCIDRs") or [])
    return listed if not first or listed[:1] == [first] else [first]


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
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            why = "taints must be unique by key and effect pair"
            causes.append(Cause(path, f"Duplicate value: {quoted(shown)}", why))
        known.add((key, effect))
    return causes


def _cidrs(cidrs: list[str]) -> list[Cause]:
    causes = []
    for index, cidr in enumerate(cidrs):
        causes += invalid_values(f"spec.podCIDRs[{index}]", cidr, formats.cidr_problems(cidr))
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
    if (old.get("externalID") or "") != (new.get("externalID") or ""):
        causes.append(forbidden("spec.externalID", "may not be updated"))
    return causes


STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    NODE: Strategy(
        validate_node,
        _NODES,
        defaults=default_node,
        subresources={"status": SubresourceStrategy(validate_node_update)},
        generation=None,
        field_labels=FieldLabels({**NAMED, "spec.unschedulable": flag("spec.unschedulable")}),
    ),
}
