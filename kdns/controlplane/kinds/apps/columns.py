"""The columns of workloads."""

from __future__ import annotations

from typing import Final

from kdns.controlplane.kinds.columns import printer_of

TEMPLATE: Final = (
    "Containers*=spec.template.spec.containers.name",
    "Images*=spec.template.spec.containers.image",
    "Selector*=spec.selector|<none>",
)
DEPLOYMENTS: Final = printer_of(
    (
        "Ready=status.readyReplicas|0/spec.replicas|0",
        "Up-to-date=status.updatedReplicas|0",
        "Available=status.availableReplicas|0",
        "Age",
        *TEMPLATE,
    )
)
REPLICAS: Final = printer_of(
    ("Desired=spec.replicas|0", "Current=status.replicas|0", "Ready=status.readyReplicas|0", "Age", *TEMPLATE)
)
STATEFUL_SETS: Final = printer_of(("Ready=status.readyReplicas|0/spec.replicas|0", "Age", *TEMPLATE))
DAEMON_SETS: Final = printer_of(
    (
        "Desired=status.desiredNumberScheduled|0",
        "Current=status.currentNumberScheduled|0",
        "Ready=status.numberReady|0",
        "Up-to-date=status.updatedNumberScheduled|0",
        "Available=status.numberAvailable|0",
        "Age",
        *TEMPLATE,
    )
)
CONTROLLER_REVISIONS: Final = printer_of(
    ("Controller=metadata.ownerReferences.name|<none>", "Revision=revision|0", "Age")
)
