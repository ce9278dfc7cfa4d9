"""The table of resources that the control plane serves: discovery, routing, storage and printing read it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
"""An API object as decoded JSON, with every field that the client sent."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One served resource, in the terms of API discovery (meta/v1 APIResource). Kinds are compared by identity.

    `columns` are those of `kubectl get` for a generic kind beside the name: each is `Title=path.of.the.field`, with
    `|text` for an absent one, or `Age`. Without columns it shows name and creation time, as kube-apiserver does.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def singular(self) -> str:
        """The singular name, which kubectl accepts too."""
        return self.kind.lower()

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`, as objects spell it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """`plural` or `plural.group`, as messages and kubectl spell it (GroupResource)."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def list_kind(self) -> str:
        """The kind of a list."""
        return f"{self.kind}List"


NAMESPACE = Kind("", "v1", "Namespace", "namespaces", False, ("ns",), ("status", "finalize"))
SERVICE = Kind("", "v1", "Service", "services", True, ("svc",), ("status",), ("all",))
ENDPOINTS = Kind("", "v1", "Endpoints", "endpoints", True, ("ep",))
POD = Kind("", "v1", "Pod", "pods", True, ("po",), ("status", "ephemeralcontainers", "eviction", "binding"), ("all",))
NODE = Kind("", "v1", "Node", "nodes", False, ("no",), ("status",))
EVENT = Kind("", "v1", "Event", "events", True, ("ev",))
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", True, ("cm",))
SECRET = Kind("", "v1", "Secret", "secrets")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts", True, ("sa",))
JOB = Kind("batch", "v1", "Job", "jobs", True, (), ("status",), ("all",))
SERVICE_CIDR = Kind("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", False, (), ("status",))
IP_ADDRESS = Kind("networking.k8s.io", "v1", "IPAddress", "ipaddresses", False, ("ip",))
DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, ("pdb",), ("status",))
REPLICATION_CONTROLLER = Kind(
    "", "v1", "ReplicationController", "replicationcontrollers", True, ("rc",), ("status", "scale"), ("all",)
)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", True, ("deploy",), ("status", "scale"), ("all",))
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets", True, ("rs",), ("status", "scale"), ("all",))
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets", True, ("sts",), ("status", "scale"), ("all",))
DAEMON_SET = Kind("apps", "v1", "DaemonSet", "daemonsets", True, ("ds",), ("status",), ("all",))
CONTROLLER_REVISION = Kind("apps", "v1", "ControllerRevision", "controllerrevisions")

WORKLOADS: tuple[Kind, ...] = (REPLICATION_CONTROLLER, DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET)
"""The kinds whose controllers replace Pods that are gone."""

CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, ("pvc",), ("status",))
VOLUME = Kind("", "v1", "PersistentVolume", "persistentvolumes", False, ("pv",), ("status",))
CRON_JOB = Kind("batch", "v1", "CronJob", "cronjobs", True, ("cj",), ("status",), ("all",))
INGRESS = Kind("networking.k8s.io", "v1", "Ingress", "ingresses", True, ("ing",), ("status",))
INGRESS_CLASS = Kind("networking.k8s.io", "v1", "IngressClass", "ingressclasses", False)
API_SERVICE = Kind(
    "apiregistration.k8s.io", "v1", "APIService", "apiservices", False, (), ("status",), ("api-extensions",)
)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", columns=("Holder=spec.holderIdentity", "Age"))
AUTOSCALER = Kind(
    "autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", True, ("hpa",), ("status",), ("all",)
)
SIGNING_REQUEST = Kind(
    *("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests"),
    *(False, ("csr",), ("status", "approval")),
)

_STATUS, _EXTENSIONS = ("status",), ("api-extensions",)
_ADMISSION, _FLOWS = "admissionregistration.k8s.io", "flowcontrol.apiserver.k8s.io"
_CSI_DRIVER = (
    "AttachRequired=spec.attachRequired|true",
    "PodInfoOnMount=spec.podInfoOnMount|false",
    "StorageCapacity=spec.storageCapacity|false",
    "TokenRequests=spec.tokenRequests.audience|<unset>",
    "RequiresRepublish=spec.requiresRepublish|false",
    "Modes=spec.volumeLifecycleModes|Persistent",
    "Age",
)
_PRIORITY_CLASS = (
    "Value=value",
    "Global-Default=globalDefault|false",
    "Age",
    "PreemptionPolicy=preemptionPolicy|PreemptLowerPriority",
)
_ATTACHMENT = (
    "Attacher=spec.attacher",
    "PV=spec.source.persistentVolumeName",
    "Node=spec.nodeName",
    "Attached=status.attached|false",
    "Age",
)
_PRIORITY_LEVEL = (
    "Type=spec.type",
    "NominalConcurrencyShares=spec.limited.nominalConcurrencyShares|<none>",
    "Queues=spec.limited.limitResponse.queuing.queues|<none>",
    "HandSize=spec.limited.limitResponse.queuing.handSize|<none>",
    "QueueLengthLimit=spec.limited.limitResponse.queuing.queueLengthLimit|<none>",
    "Age",
)
_RESOURCE_SLICE = ("Node=spec.nodeName", "Driver=spec.driver", "Pool=spec.pool.name", "Age")
RESOURCE_SLICE = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", False, columns=_RESOURCE_SLICE)

GENERIC: tuple[Kind, ...] = (
    CLAIM,
    VOLUME,
    CRON_JOB,
    INGRESS,
    INGRESS_CLASS,
    LEASE,
    Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", True, ("netpol",)),
    AUTOSCALER,
    Kind("", "v1", "ResourceQuota", "resourcequotas", True, ("quota",), _STATUS),
    Kind("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False),
    Kind("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", False),
    Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", False, ("sc",)),
    Kind("storage.k8s.io", "v1", "CSIDriver", "csidrivers", False, columns=_CSI_DRIVER),
    Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, ("pc",), columns=_PRIORITY_CLASS),
    Kind(
        *(_ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False),
        categories=_EXTENSIONS,
    ),
    Kind(
        *(_ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False),
        categories=_EXTENSIONS,
    ),
    API_SERVICE,
    Kind("", "v1", "LimitRange", "limitranges", True, ("limits",)),
    Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", False, columns=("Handler=handler", "Age")),
    Kind("", "v1", "PodTemplate", "podtemplates"),
    SIGNING_REQUEST,
    Kind("storage.k8s.io", "v1", "CSINode", "csinodes", False),
    Kind("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities"),
    Kind("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", False, (), _STATUS, columns=_ATTACHMENT),
    Kind(
        *("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", False, ("vac",)),
        columns=("DriverName=driverName", "Age"),
    ),
    Kind(_ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", False, (), _STATUS, _EXTENSIONS),
    Kind(
        *(_ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", False),
        categories=_EXTENSIONS,
    ),
    Kind(_ADMISSION, "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies", False, categories=_EXTENSIONS),
    Kind(
        *(_ADMISSION, "v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", False),
        categories=_EXTENSIONS,
    ),
    Kind(_FLOWS, "v1", "FlowSchema", "flowschemas", False, (), _STATUS),
    Kind(
        *(_FLOWS, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", False, (), _STATUS),
        columns=_PRIORITY_LEVEL,
    ),
    Kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False, columns=("Age",)),
    Kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", True, (), _STATUS),
    Kind("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", columns=("Age",)),
    RESOURCE_SLICE,
)
"""Kinds that nothing in kdns acts on: stored, checked against their schema, printed. One line each."""

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
    CONFIG_MAP,
    SECRET,
    SERVICE_ACCOUNT,
    JOB,
    DISRUPTION_BUDGET,
    *GENERIC,
    SERVICE_CIDR,
    IP_ADDRESS,
)
"""The stored kinds."""

EVENT_V1 = Kind("events.k8s.io", "v1", "Event", "events", True, ("ev",))
AUTOSCALER_V1 = replace(AUTOSCALER, version="v1")
STORED_KINDS: dict[Kind, Kind] = {EVENT_V1: EVENT, AUTOSCALER_V1: AUTOSCALER}
"""Kind that is served by conversion → the kind that is stored."""

SERVED: tuple[Kind, ...] = (*KINDS, *STORED_KINDS)
"""The served kinds."""

_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
SELF_REVIEW = Kind(_AUTHENTICATION, "v1", "SelfSubjectReview", "selfsubjectreviews", False)
TOKEN_REVIEW = Kind(_AUTHENTICATION, "v1", "TokenReview", "tokenreviews", False)
LOCAL_ACCESS_REVIEW = Kind(_AUTHORIZATION, "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews")
SELF_ACCESS_REVIEW = Kind(_AUTHORIZATION, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False)
RULES_REVIEW = Kind(_AUTHORIZATION, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", False)
ACCESS_REVIEW = Kind(_AUTHORIZATION, "v1", "SubjectAccessReview", "subjectaccessreviews", False)
REVIEWS: tuple[Kind, ...] = (
    SELF_REVIEW,
    TOKEN_REVIEW,
    LOCAL_ACCESS_REVIEW,
    SELF_ACCESS_REVIEW,
    RULES_REVIEW,
    ACCESS_REVIEW,
)
"""Reviews: a POST sends the request, the response has the answer; nothing is stored."""
