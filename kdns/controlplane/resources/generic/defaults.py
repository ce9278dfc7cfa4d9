"""The defaults of generic kinds (kube-apiserver: defaults.go of each API group), and their first status.

Differs: a LimitRange does not say the limits and requests that follow from others, and no claim is given a class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kdns.controlplane.meta.kinds import AUTOSCALER, CLAIM, CRON_JOB, INGRESS, VOLUME, Json, Kind
from kdns.controlplane.resources.apps.defaults import default_template
from kdns.controlplane.resources.generic.autoscaler_v1 import cpu_metric
from kdns.controlplane.storage.object_meta import copied

_CPU_PERCENT: Final = 80
_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
_CLASS: Final[Json] = {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
_DRIVER: Final[Json] = {
    "spec.attachRequired": True,
    "spec.fsGroupPolicy": "ReadWriteOnceWithFSType",
    "spec.podInfoOnMount": False,
    "spec.requiresRepublish": False,
    "spec.seLinuxMount": False,
    "spec.storageCapacity": False,
    "spec.volumeLifecycleModes": ["Persistent"],
}


def _matched(path: str, rules: str) -> Json:
    """Sets the defaults of the request rules of a webhook or a policy."""
    selectors = {f"{path}{field}Selector": Json() for field in ("namespace", "object")}
    return {f"{path}matchPolicy": "Equivalent", **selectors, f"{path}{rules}[].scope": "*"}


_WEBHOOK: Final[Json] = {
    "webhooks[].failurePolicy": "Fail",
    "webhooks[].timeoutSeconds": 10,
    "webhooks[].clientConfig.service.port": 443,
    **_matched("webhooks[].", "rules"),
}
_POLICY: Final[Json] = {
    "spec.failurePolicy": "Fail",
    **_matched("spec.matchConstraints.", "resourceRules"),
    "spec.matchConstraints.excludeResourceRules[].scope": "*",
}
_BINDING: Final[Json] = {
    **_matched("spec.matchResources.", "resourceRules"),
    "spec.matchResources.excludeResourceRules[].scope": "*",
}

_VALUES: Final[Mapping[str, Json]] = {
    AUTOSCALER.resource: {"spec.minReplicas": 1, "spec.metrics": [cpu_metric("target", _CPU_PERCENT)]},
    CLAIM.resource: {"spec.volumeMode": "Filesystem"},
    VOLUME.resource: {
        "spec.volumeMode": "Filesystem",
        "spec.persistentVolumeReclaimPolicy": "Retain",
        "spec.hostPath.type": "",
    },
    CRON_JOB.resource: {
        "spec.concurrencyPolicy": "Allow",
        "spec.suspend": False,
        "spec.successfulJobsHistoryLimit": 3,
        "spec.failedJobsHistoryLimit": 1,
    },
    "networkpolicies.networking.k8s.io": {
        "spec.ingress[].ports[].protocol": "TCP",
        "spec.egress[].ports[].protocol": "TCP",
    },
    f"rolebindings.{_RBAC}": {"roleRef.apiGroup": _RBAC},
    f"clusterrolebindings.{_RBAC}": {"roleRef.apiGroup": _RBAC},
    "storageclasses.storage.k8s.io": _CLASS,
    "csidrivers.storage.k8s.io": _DRIVER,
    "priorityclasses.scheduling.k8s.io": {"preemptionPolicy": "PreemptLowerPriority"},
    f"mutatingwebhookconfigurations.{_ADMISSION}": {**_WEBHOOK, "webhooks[].reinvocationPolicy": "Never"},
    f"validatingwebhookconfigurations.{_ADMISSION}": _WEBHOOK,
    f"validatingadmissionpolicies.{_ADMISSION}": _POLICY,
    f"mutatingadmissionpolicies.{_ADMISSION}": _POLICY,
    f"validatingadmissionpolicybindings.{_ADMISSION}": _BINDING,
    f"mutatingadmissionpolicybindings.{_ADMISSION}": _BINDING,
    "apiservices.apiregistration.k8s.io": {"spec.service.port": 443},
    "flowschemas.flowcontrol.apiserver.k8s.io": {"spec.matchingPrecedence": 1000},
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": {
        "spec.exempt.nominalConcurrencyShares": 0,
        "spec.exempt.lendablePercent": 0,
        "spec.limited.nominalConcurrencyShares": 30,
        "spec.limited.lendablePercent": 0,
        "spec.limited.limitResponse.queuing.queues": 64,
        "spec.limited.limitResponse.queuing.handSize": 8,
        "spec.limited.limitResponse.queuing.queueLengthLimit": 50,
    },
    "resourceclaims.resource.k8s.io": {
        "spec.devices.requests[].exactly.allocationMode": "ExactCount",
        "spec.devices.requests[].firstAvailable[].allocationMode": "ExactCount",
    },
    "resourceclaimtemplates.resource.k8s.io": {
        "spec.spec.devices.requests[].exactly.allocationMode": "ExactCount",
        "spec.spec.devices.requests[].firstAvailable[].allocationMode": "ExactCount",
    },
}
"""Resource → path of a field → its default, if its parent exists; `[]` means each element."""


def _template(*path: str) -> Callable[[Json], Json]:
    """Fills in the defaults of the Pod template at the end of the path."""

    def filled(obj: Json) -> Json:
        name, *rest = path
        if not isinstance(inner := obj.get(name), dict):
            return obj
        return {**obj, name: _template(*rest)(inner) if rest else default_template(inner)}

    return filled


def _policy_types(obj: Json) -> Json:
    spec = obj.get("spec")
    if not isinstance(spec, dict) or spec.get("policyTypes"):
        return obj
    return {**obj, "spec": {**spec, "policyTypes": ["Ingress", *(["Egress"] if spec.get("egress") else [])]}}


def _subjects(obj: Json) -> Json:
    """Sets the RBAC API group of users and groups."""
    if not isinstance(listed := obj.get("subjects"), list):
        return obj
    groups = {"User": _RBAC, "Group": _RBAC}
    rows = [{"apiGroup": groups[each["kind"]], **each} if each.get("kind") in groups else each for each in listed]
    return {**obj, "subjects": rows}


def _counts(*path: str) -> Callable[[Json], Json]:
    """Requests for an exact number of devices are for one, in the claim at the end of the path."""

    def filled(obj: Json) -> Json:
        match obj, path:
            case {"allocationMode": "ExactCount"}, ():
                return {"count": 1, **obj}
            case _, (name, *rest) if isinstance(inner := obj.get(name), dict):
                return {**obj, name: _counts(*rest)(inner)}
            case _, (name, *rest) if isinstance(inner := obj.get(name), list):
                return {**obj, name: [_counts(*rest)(each) for each in inner]}
        return obj

    return filled


_RULES: Final[Mapping[str, tuple[Callable[[Json], Json], ...]]] = {
    "podtemplates": (_template("template"),),
    CRON_JOB.resource: (_template("spec", "jobTemplate", "spec", "template"),),
    "networkpolicies.networking.k8s.io": (_policy_types,),
    f"rolebindings.{_RBAC}": (_subjects,),
    f"clusterrolebindings.{_RBAC}": (_subjects,),
    "resourceclaims.resource.k8s.io": (
        _counts("spec", "devices", "requests", "exactly"),
        _counts("spec", "devices", "requests", "firstAvailable"),
    ),
    "resourceclaimtemplates.resource.k8s.io": (
        _counts("spec", "spec", "devices", "requests", "exactly"),
        _counts("spec", "spec", "devices", "requests", "firstAvailable"),
    ),
}
"""Resource → the defaults that depend on other fields."""

_STATUS: Final[Mapping[str, Json]] = {
    CLAIM.resource: {"phase": "Pending"},
    VOLUME.resource: {"phase": "Pending"},
    INGRESS.resource: {"loadBalancer": {}},
}

UNCOUNTED: Final = frozenset(
    {"CSIDriver", "CSIStorageCapacity", "StorageClass", "VolumeAttributesClass", "RuntimeClass", "APIService"}
    | {"CSINode", "VolumeAttachment"}
    | {"ResourceClaim", "ResourceClaimTemplate", "ResourceQuota", "LimitRange", AUTOSCALER.kind}
    | {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
)
"""Kinds without metadata.generation."""

RETURNED: Final = frozenset(
    {"ResourceQuota", "PodTemplate", "StorageClass", "CSIDriver", "CSINode", "VolumeAttachment"}
    | {"VolumeAttributesClass", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"}
)
"""Kinds whose deletion is answered with the object (ReturnDeletedObject in pkg/registry), not with a Status."""


def defaults_of(kind: Kind) -> Callable[[Json], Json]:
    """Fills in the defaults of a generic kind's objects, also in a spec that is absent: in Go it is always there."""
    return partial(_filled, _VALUES.get(kind.resource, {}), _RULES.get(kind.resource, ()))


def first_status_of(kind: Kind) -> Callable[[Json], Json] | None:
    """Returns the status of a new object, whatever its author says; None for a kind without status."""
    if "status" not in kind.subresources:
        return None
    return lambda _: copied(_STATUS.get(kind.resource, {}))


def _filled(values: Json, rules: tuple[Callable[[Json], Json], ...], obj: Json) -> Json:
    for path, value in values.items():
        obj = _with_value(obj, path.split("."), value)
    for rule in rules:
        obj = rule(obj)
    return obj


def _with_value(obj: Any, path: list[str], value: Any) -> Any:
    """Returns the object with the value at the path, if the parent exists. null, [] and "" count as absent."""
    if not isinstance(obj, dict):
        return obj
    name, *rest = path
    if not rest:
        return obj if obj.get(name) not in (None, [], "") else {**obj, name: copied({name: value})[name]}
    if name.endswith("[]"):
        name = name.removesuffix("[]")
        listed = obj.get(name)
        return {**obj, name: [_with_value(each, rest, value) for each in listed]} if isinstance(listed, list) else obj
    return {**obj, name: _with_value(obj[name], rest, value)} if isinstance(obj.get(name), dict) else obj
