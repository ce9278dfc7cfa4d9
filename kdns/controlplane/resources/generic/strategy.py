"""The strategies of inert kinds: what nothing in kdns acts on is stored, checked against its schema and printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from kdns.controlplane.meta import formats
from kdns.controlplane.meta.errors import Cause
from kdns.controlplane.meta.formats import Format
from kdns.controlplane.meta.kinds import (
    AUTOSCALER,
    CLAIM,
    CRON_JOB,
    INGRESS,
    LEASE,
    SIGNING_REQUEST,
    VOLUME,
    Json,
    Kind,
)
from kdns.controlplane.resources import warnings
from kdns.controlplane.resources.columns import printer_of
from kdns.controlplane.resources.generic import columns, defaults
from kdns.controlplane.resources.generic.signing_requests import unchanged_request
from kdns.controlplane.resources.strategy import NAMED, Strategy, no_warnings, with_metadata_of_old
from kdns.controlplane.resources.validation import validate_meta, validate_meta_update
from kdns.controlplane.storage.field_selectors import FieldLabels, fields
from kdns.controlplane.storage.object_meta import content

_inert: Final = partial(Kind, is_inert=True)
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

INGRESS_CLASS: Final = _inert("networking.k8s.io", "v1", "IngressClass", "ingressclasses", False)
API_SERVICE: Final = _inert(
    "apiregistration.k8s.io", "v1", "APIService", "apiservices", False, (), ("status",), ("api-extensions",)
)
RESOURCE_SLICE: Final = _inert(
    "resource.k8s.io", "v1", "ResourceSlice", "resourceslices", False, columns=_RESOURCE_SLICE
)

_KINDS: Final[tuple[Kind, ...]] = (
    CLAIM,
    VOLUME,
    CRON_JOB,
    INGRESS,
    INGRESS_CLASS,
    LEASE,
    AUTOSCALER,
    API_SERVICE,
    SIGNING_REQUEST,
    RESOURCE_SLICE,
    _inert("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", True, ("netpol",)),
    _inert("", "v1", "ResourceQuota", "resourcequotas", True, ("quota",), _STATUS),
    _inert("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    _inert("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    _inert("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False),
    _inert("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", False),
    _inert("storage.k8s.io", "v1", "StorageClass", "storageclasses", False, ("sc",)),
    _inert("storage.k8s.io", "v1", "CSIDriver", "csidrivers", False, columns=_CSI_DRIVER),
    _inert("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, ("pc",), columns=_PRIORITY_CLASS),
    _inert(
        *(_ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False),
        categories=_EXTENSIONS,
    ),
    _inert(
        *(_ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False),
        categories=_EXTENSIONS,
    ),
    _inert("", "v1", "LimitRange", "limitranges", True, ("limits",)),
    _inert("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", False, columns=("Handler=handler", "Age")),
    _inert("", "v1", "PodTemplate", "podtemplates"),
    _inert("storage.k8s.io", "v1", "CSINode", "csinodes", False),
    _inert("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities"),
    _inert("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", False, (), _STATUS, columns=_ATTACHMENT),
    _inert(
        *("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", False, ("vac",)),
        columns=("DriverName=driverName", "Age"),
    ),
    _inert(
        _ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", False, (), _STATUS, _EXTENSIONS
    ),
    _inert(
        *(_ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", False),
        categories=_EXTENSIONS,
    ),
    _inert(_ADMISSION, "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies", False, categories=_EXTENSIONS),
    _inert(
        *(_ADMISSION, "v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", False),
        categories=_EXTENSIONS,
    ),
    _inert(_FLOWS, "v1", "FlowSchema", "flowschemas", False, (), _STATUS),
    _inert(
        *(_FLOWS, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", False, (), _STATUS),
        columns=_PRIORITY_LEVEL,
    ),
    _inert("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False, columns=("Age",)),
    _inert("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", True, (), _STATUS),
    _inert("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", columns=("Age",)),
)

_NAMES: Final[dict[str, Format]] = {"rbac.authorization.k8s.io": formats.path_segment}
"""API group → the format of its names, if it is not a DNS subdomain."""


def generic(kind: Kind) -> Strategy:
    """Returns the strategy of a kind that nothing acts on: beside its schema, metadata alone is validated."""
    name = _NAMES.get(kind.group, formats.dns_subdomain)

    def validate(new: Json, old: Json | None) -> list[Cause]:
        causes = validate_meta_update(old, new) if old else []
        return causes + validate_meta(new, name, namespaced=kind.namespaced)

    printer = columns.PRINTERS.get(kind.resource) or printer_of(kind.columns)
    return Strategy(
        validate,
        printer,
        defaults=defaults.defaults_of(kind),
        first_status=defaults.first_status_of(kind),
        generation=None if kind.kind in defaults.UNCOUNTED else content,
        return_deleted_object=kind.kind in defaults.RETURNED,
        warnings=lambda _: (warnings.inert(kind),),
    )


STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    **{kind: generic(kind) for kind in _KINDS},
    CLAIM: replace(generic(CLAIM), generation=None, return_deleted_object=True),
    VOLUME: replace(generic(VOLUME), generation=None, return_deleted_object=True),
    API_SERVICE: replace(
        generic(API_SERVICE),
        prepare_status=with_metadata_of_old("labels", "annotations", "finalizers", "ownerReferences"),
    ),
    CRON_JOB: replace(generic(CRON_JOB), makes_objects=True),
    RESOURCE_SLICE: replace(
        generic(RESOURCE_SLICE),
        field_labels=FieldLabels(
            {**NAMED, **fields("spec.nodeName", "spec.driver")},
            f"field label not supported for {RESOURCE_SLICE.api_version}, Kind=ResourceSlice: {{}}",
        ),
    ),
    SIGNING_REQUEST: replace(
        generic(SIGNING_REQUEST),
        prepare=unchanged_request,
        generation=None,
        field_labels=FieldLabels({**NAMED, **fields("spec.signerName")}),
    ),
    LEASE: replace(
        generic(LEASE),
        warnings=no_warnings,  # its holders act on it
        generation=None,
        allow_create_on_update=True,
        allow_unconditional_update=False,
    ),
}
