"""The columns of generic kinds whose cells are more than the fields at paths (kube-apiserver: pkg/printers).

The columns of the others are paths in meta/inert_kinds.txt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kdns.controlplane.meta.human_duration import human_duration, since
from kdns.controlplane.meta.inert import AUTOSCALER, CLAIM, CRON_JOB, INGRESS, VOLUME
from kdns.controlplane.meta.kinds import Json
from kdns.controlplane.resources.batch.columns import CONTAINERS, IMAGES, containers_and_selector
from kdns.controlplane.resources.columns import AGE, NAME, NONE, Cells, Column, Printer, age, join_labels, name
from kdns.controlplane.resources.label_selectors import selector_text

_UNSET, _UNKNOWN = "<unset>", "<unknown>"
_METRICS_SHOWN = 2
_HOSTS_SHOWN = 3
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _phase(obj: Json) -> str:
    going = obj.get("metadata", {}).get("deletionTimestamp")
    return "Terminating" if going else str((obj.get("status") or {}).get("phase", ""))


def _modes(modes: list[str] | None) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def _claim(obj: Json, now_s: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        name(obj),
        _phase(obj),
        spec.get("volumeName", ""),
        str((status.get("capacity") or {}).get("storage", "")) if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or _UNSET,
        age(obj, now_s),
        spec.get("volumeMode") or _UNSET,
    ]


def _volume(obj: Json, now_s: float) -> list[Any]:
    spec, claim = obj.get("spec") or {}, (obj.get("spec") or {}).get("claimRef")
    return [
        name(obj),
        str((spec.get("capacity") or {}).get("storage", "")),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or _UNSET,
        (obj.get("status") or {}).get("reason", ""),
        age(obj, now_s),
        spec.get("volumeMode") or _UNSET,
    ]


def _cron_job(obj: Json, now_s: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    last = status.get("lastScheduleTime")
    return [
        name(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        str(bool(spec.get("suspend"))),
        len(status.get("active") or ()),
        since(last, now_s) if last else NONE,
        age(obj, now_s),
        *containers_and_selector((spec.get("jobTemplate") or {}).get("spec") or {}),
    ]


def _ingress(obj: Json, now_s: float) -> list[Any]:
    spec = obj.get("spec") or {}
    rules = spec.get("rules") or ()
    hosts = [rule["host"] for rule in rules[:_HOSTS_SHOWN] if rule.get("host")]
    more = f" + {len(rules) - _HOSTS_SHOWN} more..." if len(hosts) == _HOSTS_SHOWN < len(rules) else ""
    points = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return [
        name(obj),
        spec.get("ingressClassName") or NONE,
        (",".join(hosts) or "*") + more,
        ",".join(sorted({each.get("ip") or each.get("hostname") or "" for each in points} - {""})),
        "80, 443" if spec.get("tls") else "80",
        age(obj, now_s),
    ]


def _ingress_class(obj: Json, now_s: float) -> list[Any]:
    spec = obj.get("spec") or {}
    given, shown = spec.get("parameters"), NONE
    if given:
        kind = ".".join(filter(None, (given.get("kind"), given.get("apiGroup"))))
        shown = f"{kind}/{given.get('name', '')}"
    return [name(obj), spec.get("controller", ""), shown, age(obj, now_s)]


def _binding(obj: Json, now_s: float) -> list[Any]:
    """Returns the cells of a RoleBinding or ClusterRoleBinding."""
    role, subjects = obj.get("roleRef") or {}, obj.get("subjects") or ()
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for each in subjects:
        account = f"{each.get('namespace', '')}/{each.get('name', '')}"
        kind = each.get("kind", "")
        by_kind.setdefault(kind, []).append(account if kind == "ServiceAccount" else each.get("name", ""))
    listed = [", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [name(obj), f"{role.get('kind', '')}/{role.get('name', '')}", age(obj, now_s), *listed]


def _network_policy(obj: Json, now_s: float) -> list[Any]:
    return [name(obj), selector_text((obj.get("spec") or {}).get("podSelector") or {}) or NONE, age(obj, now_s)]


def _autoscaler(obj: Json, now_s: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    target = spec.get("scaleTargetRef") or {}
    least = spec.get("minReplicas")
    return [
        name(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(spec.get("metrics") or (), status.get("currentMetrics") or ()),
        _UNSET if least is None else str(least),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age(obj, now_s),
    ]


def _metrics(specs: Sequence[Json], current: Sequence[Json]) -> str:
    """Returns current and target value of the first two metrics, and the number of further ones."""
    texts = [_metric(spec, current[index] if index < len(current) else {}) for index, spec in enumerate(specs)]
    more = f" + {len(texts) - _METRICS_SHOWN} more..." if len(texts) > _METRICS_SHOWN else ""
    return (", ".join(texts[:_METRICS_SHOWN]) or NONE) + more


def _metric(spec: Json, current: Json) -> str:
    source = spec.get("type", "")
    field = f"{source[:1].lower()}{source[1:]}"
    wanted, now = (spec.get(field) or {}).get("target") or {}, (current.get(field) or {}).get("current") or {}
    prefix = f"{(spec.get(field) or {}).get('name', '')}: " if source in {"Resource", "ContainerResource"} else ""
    if wanted.get("averageValue") is not None:
        suffix = " (avg)" if source in {"Object", "External"} else ""
        return f"{prefix}{now.get('averageValue', _UNKNOWN)}/{wanted['averageValue']}{suffix}"
    if source in {"Resource", "ContainerResource"}:
        used = f"{now['averageUtilization']}%" if now.get("averageUtilization") is not None else _UNKNOWN
        return f"{prefix}{used}/{wanted['averageUtilization']}%" if "averageUtilization" in wanted else f"{used}/<auto>"
    return f"{now.get('value', _UNKNOWN)}/{wanted.get('value', _UNSET)}"


def _quota(obj: Json, now_s: float) -> list[Any]:
    """Returns used and hard amounts: of requests and others, then of limits."""
    status = obj.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    texts = {each: f"{each}: {used.get(each, 0)}/{hard[each]}" for each in sorted(hard)}
    limits = [text for each, text in texts.items() if each.startswith("limits.")]
    requests = [text for each, text in texts.items() if not each.startswith("limits.")]
    return [name(obj), ", ".join(requests), ", ".join(limits), age(obj, now_s)]


def _storage_class(obj: Json, now_s: float) -> list[Any]:
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    is_default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        f"{name(obj)} (default)" if is_default else name(obj),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        str(bool(obj.get("allowVolumeExpansion"))).lower(),
        age(obj, now_s),
    ]


def _api_service(obj: Json, now_s: float) -> list[Any]:
    service = (obj.get("spec") or {}).get("service")
    where = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    rows = (obj.get("status") or {}).get("conditions") or ()
    found: Json = next((row for row in rows if row.get("type") == "Available"), {})
    available = found.get("status") or "Unknown"
    shown = available if available == "True" or not found else f"{available} ({found.get('reason', '')})"
    return [name(obj), where, shown, age(obj, now_s)]


def _pod_template(obj: Json, _now_s: float) -> list[Any]:
    names, images, _ = containers_and_selector(obj)
    labels = ((obj.get("template") or {}).get("metadata") or {}).get("labels")
    return [name(obj), names, images, join_labels(labels)]


def _signing_request(obj: Json, now_s: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    seconds = spec.get("expirationSeconds")
    held = {each.get("type") for each in status.get("conditions") or ()}
    states = ["Denied" if "Denied" in held else "Approved" if "Approved" in held else "Pending"]
    states += ["Failed"] * ("Failed" in held) + ["Issued"] * bool(status.get("certificate"))
    return [
        name(obj),
        age(obj, now_s),
        spec.get("signerName") or NONE,
        spec.get("username", ""),
        NONE if seconds is None else human_duration(seconds),
        ",".join(states),
    ]


def _policy(rules: str) -> Cells:
    """Returns the cells of both kinds of admission policies: the number of rules, and the kind of their parameters."""

    def cells(obj: Json, now_s: float) -> list[Any]:
        spec = obj.get("spec") or {}
        kind = spec.get("paramKind")
        shown = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else _UNSET
        return [name(obj), len(spec.get(rules) or ()), shown, age(obj, now_s)]

    return cells


def _policy_binding(obj: Json, now_s: float) -> list[Any]:
    spec = obj.get("spec") or {}
    found, shown = spec.get("paramRef") or {}, _UNSET
    if found.get("name"):
        shown = f"{found.get('namespace') or '*'}/{found['name']}"
    elif found.get("selector") is not None:
        shown = selector_text(found["selector"])
    return [name(obj), spec.get("policyName", ""), shown, age(obj, now_s)]


def _flow_schema(obj: Json, now_s: float) -> list[Any]:
    spec, rows = obj.get("spec") or {}, (obj.get("status") or {}).get("conditions") or ()
    return [
        name(obj),
        (spec.get("priorityLevelConfiguration") or {}).get("name", ""),
        spec.get("matchingPrecedence") or 0,
        (spec.get("distinguisherMethod") or {}).get("type", NONE),
        age(obj, now_s),
        next((row.get("status", "") for row in rows if row.get("type") == "Dangling"), "?"),
    ]


def _resource_claim(obj: Json, now_s: float) -> list[Any]:
    going, status = bool(obj.get("metadata", {}).get("deletionTimestamp")), obj.get("status") or {}
    states = ["deleted"] * going
    if status.get("allocation"):
        states += ["allocated"] + ["reserved"] * bool(status.get("reservedFor"))
    elif not going:
        states = ["pending"]
    return [name(obj), ",".join(states), age(obj, now_s)]


_BINDINGS: Final = Printer(
    (
        NAME,
        Column("Role", "roleRef"),
        AGE,
        Column("Users", "Users that the binding names.", priority=1),
        Column("Groups", "Groups that the binding names.", priority=1),
        Column("ServiceAccounts", "ServiceAccounts that the binding names.", priority=1),
    ),
    _binding,
)
_POLICY_BINDINGS: Final = Printer(
    (NAME, Column("PolicyName", "spec.policyName"), Column("ParamRef", "spec.paramRef"), AGE), _policy_binding
)

PRINTERS: Final[Mapping[str, Printer]] = {
    CLAIM.resource: Printer(
        (
            NAME,
            Column("Status", "status.phase"),
            Column("Volume", "spec.volumeName"),
            Column("Capacity", "status.capacity"),
            Column("Access Modes", "status.accessModes"),
            Column("StorageClass", "spec.storageClassName"),
            Column("VolumeAttributesClass", "spec.volumeAttributesClassName"),
            AGE,
            Column("VolumeMode", "spec.volumeMode", priority=1),
        ),
        _claim,
    ),
    VOLUME.resource: Printer(
        (
            NAME,
            Column("Capacity", "spec.capacity"),
            Column("Access Modes", "spec.accessModes"),
            Column("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
            Column("Status", "status.phase"),
            Column("Claim", "spec.claimRef"),
            Column("StorageClass", "spec.storageClassName"),
            Column("VolumeAttributesClass", "spec.volumeAttributesClassName"),
            Column("Reason", "status.reason"),
            AGE,
            Column("VolumeMode", "spec.volumeMode", priority=1),
        ),
        _volume,
    ),
    CRON_JOB.resource: Printer(
        (
            NAME,
            Column("Schedule", "spec.schedule"),
            Column("Timezone", "spec.timeZone"),
            Column("Suspend", "spec.suspend"),
            Column("Active", "status.active"),
            Column("Last Schedule", "status.lastScheduleTime"),
            AGE,
            CONTAINERS,
            IMAGES,
            Column("Selector", "spec.jobTemplate.spec.selector", priority=1),
        ),
        _cron_job,
    ),
    INGRESS.resource: Printer(
        (
            NAME,
            Column("Class", "spec.ingressClassName"),
            Column("Hosts", "Hosts of the rules."),
            Column("Address", "status.loadBalancer"),
            Column("Ports", "Ports on which requests arrive."),
            AGE,
        ),
        _ingress,
    ),
    "ingressclasses.networking.k8s.io": Printer(
        (NAME, Column("Controller", "spec.controller"), Column("Parameters", "spec.parameters"), AGE),
        _ingress_class,
    ),
    "networkpolicies.networking.k8s.io": Printer(
        (NAME, Column("Pod-Selector", "spec.podSelector"), AGE),
        _network_policy,
    ),
    AUTOSCALER.resource: Printer(
        (
            NAME,
            Column("Reference", "spec.scaleTargetRef"),
            Column("Targets", "spec.metrics"),
            Column("MinPods", "spec.minReplicas"),
            Column("MaxPods", "spec.maxReplicas"),
            Column("Replicas", "status.currentReplicas"),
            AGE,
        ),
        _autoscaler,
    ),
    "resourcequotas": Printer(
        (
            NAME,
            Column("Request", "What is used and allowed, limits apart."),
            Column("Limit", "What is used and allowed of limits."),
            AGE,
        ),
        _quota,
    ),
    "rolebindings.rbac.authorization.k8s.io": _BINDINGS,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDINGS,
    "storageclasses.storage.k8s.io": Printer(
        (
            NAME,
            Column("Provisioner", "provisioner"),
            Column("ReclaimPolicy", "reclaimPolicy"),
            Column("VolumeBindingMode", "volumeBindingMode"),
            Column("AllowVolumeExpansion", "allowVolumeExpansion"),
            AGE,
        ),
        _storage_class,
    ),
    "apiservices.apiregistration.k8s.io": Printer(
        (
            NAME,
            Column("Service", "spec.service"),
            Column("Available", "Whether the service answers."),
            AGE,
        ),
        _api_service,
    ),
    "podtemplates": Printer(
        (
            NAME,
            Column("Containers", "Names of the Pods' containers."),
            Column("Images", "Images of the Pods' containers."),
            Column("Pod Labels", "Labels of the Pods."),
        ),
        _pod_template,
    ),
    "certificatesigningrequests.certificates.k8s.io": Printer(
        (
            NAME,
            AGE,
            Column("SignerName", "spec.signerName"),
            Column("Requestor", "spec.username"),
            Column("RequestedDuration", "spec.expirationSeconds"),
            Column("Condition", "status.conditions"),
        ),
        _signing_request,
    ),
    "validatingadmissionpolicies.admissionregistration.k8s.io": Printer(
        (
            NAME,
            Column("Validations", "How many rules there are.", type="integer"),
            Column("ParamKind", "spec.paramKind"),
            AGE,
        ),
        _policy("validations"),
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _POLICY_BINDINGS,
    "mutatingadmissionpolicies.admissionregistration.k8s.io": Printer(
        (
            NAME,
            Column("Mutations", "How many rules there are.", type="integer"),
            Column("ParamKind", "spec.paramKind"),
            AGE,
        ),
        _policy("mutations"),
    ),
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": _POLICY_BINDINGS,
    "flowschemas.flowcontrol.apiserver.k8s.io": Printer(
        (
            NAME,
            Column("PriorityLevel", "spec.priorityLevelConfiguration.name"),
            Column("MatchingPrecedence", "spec.matchingPrecedence"),
            Column("DistinguisherMethod", "spec.distinguisherMethod"),
            AGE,
            Column("MissingPL", "Whether the priority level is missing."),
        ),
        _flow_schema,
    ),
    "resourceclaims.resource.k8s.io": Printer(
        (NAME, Column("State", "What became of the claim, in one word or two."), AGE), _resource_claim
    ),
}
"""Resource → its printer."""
