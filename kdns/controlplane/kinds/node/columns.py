"""The columns of Nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.columns import AGE, NAME, NONE, Column, Printer, age, name

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE = "kubernetes.io/role"


def node_cells(node: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, state, roles, age, version, addresses, system."""
    spec, status = node.get("spec", {}), node.get("status", {})
    system = status.get("nodeInfo", {})
    ready = next((each.get("status") for each in status.get("conditions") or () if each.get("type") == "Ready"), None)
    state = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
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


def _node_address(status: Json, wanted: str) -> str:
    addresses = status.get("addresses") or ()
    return next((str(each.get("address")) for each in addresses if each.get("type") == wanted), NONE)


NODES: Final = Printer(
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
