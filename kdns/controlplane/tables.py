"""Server-side printing: objects as a meta/v1 Table, with the columns that `kubectl get` shows for each kind.

Columns of priority 1 are those of `-o wide`. A kind without columns of its own gets its name and creation time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from kdns.controlplane import events_v1
from kdns.controlplane.kinds import (
    CONTROLLER_REVISION,
    DAEMON_SET,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    ENDPOINTS,
    EVENT,
    EVENT_V1,
    FORMS,
    IP_ADDRESS,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    SERVICE,
    SERVICE_CIDR,
    STATEFUL_SET,
    Json,
    Kind,
)
from kdns.controlplane.tables_apps import (
    controller_revision_cells,
    daemon_set_cells,
    deployment_cells,
    replica_cells,
    stateful_set_cells,
)
from kdns.controlplane.tables_cells import (
    endpoint_slice_cells,
    endpoints_cells,
    event_cells,
    ip_address_cells,
    name,
    namespace_cells,
    node_cells,
    service_cells,
    service_cidr_cells,
)
from kdns.controlplane.tables_kept import KEPT_PRINTERS
from kdns.controlplane.tables_pods import pod_cells, pod_conditions
from kdns.controlplane.tables_printer import AGE, NAME, Column, Printer

IncludeObject: TypeAlias = Literal["None", "Metadata", "Object"]
"""How much of each object its row carries; the default of the API is Metadata."""


def table(
    kind: Kind,
    objects: Sequence[Json],
    *,
    now_s: float,
    include_object: IncludeObject = "Metadata",
    metadata: Json | None = None,
) -> Json:
    """The objects as a Table at a time (Unix seconds); `metadata` is the list's (resourceVersion, continue)."""
    printer = PRINTERS.get(kind, _DEFAULT)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata or {},
        "columnDefinitions": [column.definition(FORMS.get(kind, kind)) for column in printer.columns],
        "rows": [_row(kind, printer, obj, now_s, include_object) for obj in objects],
    }


def _row(kind: Kind, printer: Printer, obj: Json, now_s: float, include_object: IncludeObject) -> Json:
    row: Json = {"cells": printer.cells(obj, now_s)}
    if kind == POD and (conditions := pod_conditions(obj)):
        row["conditions"] = conditions
    match include_object:
        case "Object":
            row["object"] = obj
        case "Metadata":
            partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            row["object"] = partial | {"metadata": obj.get("metadata", {})}
        case "None":
            pass
    return row


def _default_cells(obj: Json, _now_s: float) -> list[Any]:
    return [name(obj), obj.get("metadata", {}).get("creationTimestamp", "")]


_DEFAULT = Printer((NAME, Column("Created At", "metadata.creationTimestamp", type="date")), _default_cells)

_CONTAINERS = Column("Containers", "Names of the containers in the template.", wide=True)
_IMAGES = Column("Images", "Images of the containers in the template.", wide=True)
_SELECTOR = Column("Selector", "spec.selector", wide=True)
_REPLICAS = Printer(
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

_EVENTS = Printer(
    (
        Column("Last Seen", "lastTimestamp"),
        Column("Type", "type"),
        Column("Reason", "reason"),
        Column("Object", "involvedObject"),
        Column("Subobject", "involvedObject.fieldPath", wide=True),
        Column("Source", "source", wide=True),
        Column("Message", "message"),
        Column("First Seen", "firstTimestamp", wide=True),
        Column("Count", "count", wide=True, type="integer"),
        Column("Name", "metadata.name", wide=True),
    ),
    event_cells,
)

PRINTERS: Final[Mapping[Kind, Printer]] = {
    NAMESPACE: Printer((NAME, Column("Status", "status.phase"), AGE), namespace_cells),
    SERVICE: Printer(
        (
            NAME,
            Column("Type", "spec.type"),
            Column("Cluster-IP", "spec.clusterIP"),
            Column("External-IP", "spec.externalIPs"),
            Column("Port(s)", "spec.ports"),
            AGE,
            Column("Selector", "spec.selector", wide=True),
        ),
        service_cells,
    ),
    SERVICE_CIDR: Printer((NAME, Column("CIDRs", "spec.cidrs"), AGE), service_cidr_cells),
    IP_ADDRESS: Printer((NAME, Column("ParentRef", "spec.parentRef")), ip_address_cells),
    ENDPOINTS: Printer((NAME, Column("Endpoints", "subsets"), AGE), endpoints_cells),
    ENDPOINT_SLICE: Printer(
        (
            NAME,
            Column("AddressType", "addressType"),
            Column("Ports", "ports"),
            Column("Endpoints", "endpoints"),
            AGE,
        ),
        endpoint_slice_cells,
    ),
    POD: Printer(
        (
            NAME,
            Column("Ready", "Containers that are ready, of all containers."),
            Column("Status", "What the Pod is doing, in one word."),
            Column("Restarts", "How often its containers were restarted, and when for the last time."),
            AGE,
            Column("IP", "status.podIP", wide=True),
            Column("Node", "spec.nodeName", wide=True),
            Column("Nominated Node", "status.nominatedNodeName", wide=True),
            Column("Readiness Gates", "spec.readinessGates", wide=True),
        ),
        pod_cells,
    ),
    NODE: Printer(
        (
            NAME,
            Column("Status", "Whether the node is ready, and whether it takes new Pods."),
            Column("Roles", "Roles of the node, from its labels node-role.kubernetes.io/ROLE."),
            AGE,
            Column("Version", "status.nodeInfo.kubeletVersion"),
            Column("Internal-IP", "status.addresses", wide=True),
            Column("External-IP", "status.addresses", wide=True),
            Column("OS-Image", "status.nodeInfo.osImage", wide=True),
            Column("Kernel-Version", "status.nodeInfo.kernelVersion", wide=True),
            Column("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", wide=True),
        ),
        node_cells,
    ),
    EVENT: _EVENTS,
    EVENT_V1: Printer(_EVENTS.columns, lambda event, now_s: event_cells(events_v1.stored(event), now_s)),
    DEPLOYMENT: Printer(
        (
            NAME,
            Column("Ready", "Pods that are ready, of the wanted ones."),
            Column("Up-to-date", "status.updatedReplicas", type="integer"),
            Column("Available", "status.availableReplicas", type="integer"),
            AGE,
            _CONTAINERS,
            _IMAGES,
            _SELECTOR,
        ),
        deployment_cells,
    ),
    REPLICA_SET: _REPLICAS,
    REPLICATION_CONTROLLER: _REPLICAS,
    STATEFUL_SET: Printer(
        (NAME, Column("Ready", "Pods that are ready, of the wanted ones."), AGE, _CONTAINERS, _IMAGES),
        stateful_set_cells,
    ),
    DAEMON_SET: Printer(
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
    ),
    CONTROLLER_REVISION: Printer(
        (
            NAME,
            Column("Controller", "The object that the revision belongs to."),
            Column("Revision", "revision", type="integer"),
            AGE,
        ),
        controller_revision_cells,
    ),
    **KEPT_PRINTERS,
}
