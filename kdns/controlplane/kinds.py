"""The resources the control plane serves, as one table: discovery, routing, storage and printing read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
"""An API object as JSON: every field the client sent is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One served resource, in the words of API discovery (meta/v1 APIResource). There is one object of each."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def singular(self) -> str:
        """The name kubectl accepts beside the plural."""
        return self.kind.lower()

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`, as objects spell it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """The kind of a collection."""
        return f"{self.kind}List"


NAMESPACE = Kind("", "v1", "Namespace", "namespaces", False, ("ns",), ("status", "finalize"))
SERVICE = Kind("", "v1", "Service", "services", True, ("svc",), ("status",), ("all",))
ENDPOINTS = Kind("", "v1", "Endpoints", "endpoints", True, ("ep",))
POD = Kind("", "v1", "Pod", "pods", True, ("po",), ("status", "eviction", "binding"), ("all",))
NODE = Kind("", "v1", "Node", "nodes", False, ("no",), ("status",))
EVENT = Kind("", "v1", "Event", "events", True, ("ev",))
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", True, ("cm",))
SECRET = Kind("", "v1", "Secret", "secrets")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts", True, ("sa",))
CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, ("pvc",), ("status",))
VOLUME = Kind("", "v1", "PersistentVolume", "persistentvolumes", False, ("pv",), ("status",))
JOB = Kind("batch", "v1", "Job", "jobs", True, (), ("status",), ("all",))
CRON_JOB = Kind("batch", "v1", "CronJob", "cronjobs", True, ("cj",), ("status",), ("all",))
INGRESS = Kind("networking.k8s.io", "v1", "Ingress", "ingresses", True, ("ing",), ("status",))
INGRESS_CLASS = Kind("networking.k8s.io", "v1", "IngressClass", "ingressclasses", False)
SERVICE_CIDR = Kind("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", False, (), ("status",))
IP_ADDRESS = Kind("networking.k8s.io", "v1", "IPAddress", "ipaddresses", False, ("ip",))
DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, ("pdb",), ("status",))
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
REPLICATION_CONTROLLER = Kind(
    "", "v1", "ReplicationController", "replicationcontrollers", True, ("rc",), ("status", "scale"), ("all",)
)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", True, ("deploy",), ("status", "scale"), ("all",))
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets", True, ("rs",), ("status", "scale"), ("all",))
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets", True, ("sts",), ("status", "scale"), ("all",))
DAEMON_SET = Kind("apps", "v1", "DaemonSet", "daemonsets", True, ("ds",), ("status",), ("all",))
CONTROLLER_REVISION = Kind("apps", "v1", "ControllerRevision", "controllerrevisions")

WORKLOADS: tuple[Kind, ...] = (REPLICATION_CONTROLLER, DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET)
"""The kinds that make Pods and keep them."""

KEPT: tuple[Kind, ...] = (
    CONFIG_MAP,
    SECRET,
    SERVICE_ACCOUNT,
    CLAIM,
    VOLUME,
    JOB,
    CRON_JOB,
    INGRESS,
    INGRESS_CLASS,
    LEASE,
    DISRUPTION_BUDGET,
)
"""Kinds that applications bring along: kept and served, with rules of their own."""

KINDS: tuple[Kind, ...] = (
    NAMESPACE,
    SERVICE,
    ENDPOINTS,
    POD,
    NODE,
    EVENT,
    ENDPOINT_SLICE,
    *WORKLOADS,
    CONTROLLER_REVISION,
    *KEPT,
    SERVICE_CIDR,
    IP_ADDRESS,
)
"""What is stored."""

EVENT_V1 = Kind("events.k8s.io", "v1", "Event", "events", True, ("ev",))
FORMS: dict[Kind, Kind] = {EVENT_V1: EVENT}
"""Kind that shows the objects of a stored one in another form → the stored kind."""

SERVED: tuple[Kind, ...] = (*KINDS, *FORMS)
"""What clients can ask for."""
