"""The columns of workloads, and the cells of their rows (kube-apiserver: pkg/printers/internalversion)."""

from __future__ import annotations

from typing import Any, Final

from kdns.controlplane.meta.kinds import Json
from kdns.controlplane.resources.columns import AGE, NAME, NONE, Column, Printer, age, name
from kdns.controlplane.resources.label_selectors import selector_text


def deployment_cells(obj: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, ready of desired, updated, available, age; containers, images, selector."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return [
        name(obj),
        f"{_count(status, 'readyReplicas')}/{_count(spec, 'replicas')}",
        _count(status, "updatedReplicas"),
        _count(status, "availableReplicas"),
        age(obj, now_s),
        *_containers(spec),
        _selector(spec),
    ]


def replica_cells(obj: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, desired, current, ready, age; containers, images, selector."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    counts = [_count(spec, "replicas"), _count(status, "replicas"), _count(status, "readyReplicas")]
    return [name(obj), *counts, age(obj, now_s), *_containers(spec), _selector(spec)]


def stateful_set_cells(obj: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, ready of desired, age; containers, images."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    ready = f"{_count(status, 'readyReplicas')}/{_count(spec, 'replicas')}"
    return [name(obj), ready, age(obj, now_s), *_containers(spec)]


def daemon_set_cells(obj: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, desired, current, ready, updated, available, node selector, age.

    Wide: containers, images, selector.
    """
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    fields = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    nodes = (_template_spec(spec)).get("nodeSelector") or {}
    return [
        name(obj),
        *(_count(status, field) for field in fields),
        ",".join(f"{key}={value}" for key, value in sorted(nodes.items())) or NONE,
        age(obj, now_s),
        *_containers(spec),
        _selector(spec),
    ]


def controller_revision_cells(obj: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, the owner as kind.group/name, number, age."""
    owners = obj.get("metadata", {}).get("ownerReferences") or []
    owner = next((row for row in owners if row.get("controller")), None)
    shown = NONE
    if owner:
        group = str(owner.get("apiVersion", "")).rpartition("/")[0]
        kind = str(owner.get("kind", "")).lower()
        shown = f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"
    return [name(obj), shown, _count(obj, "revision"), age(obj, now_s)]


def _count(fields: Json, field: str) -> int:
    return int(fields.get(field) or 0)


def _template_spec(spec: Json) -> Json:
    found: Json = (spec.get("template") or {}).get("spec") or {}
    return found


def _containers(spec: Json) -> list[str]:
    containers = _template_spec(spec).get("containers") or []
    return [",".join(str(each.get(field) or "") for each in containers) for field in ("name", "image")]


def _selector(spec: Json) -> str:
    return selector_text(spec.get("selector") or {}) or NONE


_CONTAINERS = Column("Containers", "Names of the containers in the template.", priority=1)
_IMAGES = Column("Images", "Images of the containers in the template.", priority=1)
_SELECTOR = Column("Selector", "spec.selector", priority=1)
REPLICAS: Final = Printer(
    (
        NAME,
        Column("Desired", "spec.replicas", type="integer"),
        Column("Current", "status.replicas", type="integer"),
        Column("Ready", "status.readyReplicas", type="integer"),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    replica_cells,
)
DEPLOYMENTS: Final = Printer(
    (
        NAME,
        Column("Ready", "Ready Pods and the desired number of Pods."),
        Column("Up-to-date", "status.updatedReplicas", type="integer"),
        Column("Available", "status.availableReplicas", type="integer"),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    deployment_cells,
)
STATEFUL_SETS: Final = Printer(
    (NAME, Column("Ready", "Ready Pods and the desired number of Pods."), AGE, _CONTAINERS, _IMAGES),
    stateful_set_cells,
)
DAEMON_SETS: Final = Printer(
    (
        NAME,
        Column("Desired", "status.desiredNumberScheduled", type="integer"),
        Column("Current", "status.currentNumberScheduled", type="integer"),
        Column("Ready", "status.numberReady", type="integer"),
        Column("Up-to-date", "status.updatedNumberScheduled", type="integer"),
        Column("Available", "status.numberAvailable", type="integer"),
        Column("Node Selector", "spec.template.spec.nodeSelector"),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    daemon_set_cells,
)
CONTROLLER_REVISIONS: Final = Printer(
    (
        NAME,
        Column("Controller", "The object that the revision belongs to."),
        Column("Revision", "revision", type="integer"),
        AGE,
    ),
    controller_revision_cells,
)
