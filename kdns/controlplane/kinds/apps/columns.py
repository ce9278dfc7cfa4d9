"""The columns of workloads, and the cells of their rows (kube-apiserver: pkg/printers/internalversion)."""

from __future__ import annotations

from typing import Any, Final

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.columns import AGE, NAME, NONE, Column, Printer, age, name, printer_of
from kdns.controlplane.kinds.label_selectors import selector_text


def deployment_cells(obj: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, ready of desired, updated, available, age; containers, images, selector."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return [
        name(obj),
        f"{_count(status, 'readyReplicas')}/{_count(spec, 'replicas')}",
        _count(status, "updatedReplicas"),
        _count(status, "availableReplicas"),
        age(obj, now_s),
        *containers_and_selector(spec),
    ]


def containers_and_selector(spec: Json) -> list[str]:
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    named = [",".join(str(each.get(field) or "") for each in containers) for field in ("name", "image")]
    return [*named, selector_text(spec["selector"]) if spec.get("selector") else NONE]


def _count(fields: Json, field: str) -> int:
    return int(fields.get(field) or 0)


CONTAINERS: Final = Column("Containers", "Names of the Pods' containers.", priority=1)
IMAGES: Final = Column("Images", "Images of the Pods' containers.", priority=1)
SELECTOR: Final = Column("Selector", "spec.selector", priority=1)
DEPLOYMENTS: Final = Printer(
    (
        NAME,
        Column("Ready", "Ready Pods and the desired number of Pods."),
        Column("Up-to-date", "status.updatedReplicas", type="integer"),
        Column("Available", "status.availableReplicas", type="integer"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ),
    deployment_cells,
)
_TEMPLATE: Final = (
    "Containers*=spec.template.spec.containers.name",
    "Images*=spec.template.spec.containers.image",
)
REPLICAS: Final = printer_of(
    ("Desired=spec.replicas|0", "Current=status.replicas|0", "Ready=status.readyReplicas|0", "Age", *_TEMPLATE)
)
STATEFUL_SETS: Final = printer_of(("Ready=status.readyReplicas|0/spec.replicas|0", "Age", *_TEMPLATE))
DAEMON_SETS: Final = printer_of(
    (
        "Desired=status.desiredNumberScheduled|0",
        "Current=status.currentNumberScheduled|0",
        "Ready=status.numberReady|0",
        "Up-to-date=status.updatedNumberScheduled|0",
        "Available=status.numberAvailable|0",
        "Age",
        *_TEMPLATE,
    )
)
CONTROLLER_REVISIONS: Final = printer_of(
    ("Controller=metadata.ownerReferences.name|<none>", "Revision=revision|0", "Age")
)
