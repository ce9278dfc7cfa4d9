"""The rules of workloads (kube-apiserver: pkg/apis/apps/validation, ValidateReplicationController)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from kdns.cluster.selectors import Selector, from_labels
from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import (
    forbidden,
    frozen,
    immutable,
    invalid_value,
    required,
    unsupported,
)
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.label_selectors import is_empty, selector_of, validate_label_selector
from kdns.controlplane.kinds.pod.validation import validate_pod
from kdns.controlplane.kinds.validation import IMMUTABLE, validate_meta, validate_meta_update

_NOT_NEGATIVE = "must be greater than or equal to 0"
_NOT_A_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
_PERCENT = re.compile(r"([0-9]{1,9})%")
MISMATCH = "`selector` does not match template `labels`"
FIXED_SET = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_CHANGEABLE = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)


def validate_deployment(obj: Json, old: Json | None = None) -> list[Cause]:
    """Validates a Deployment; its selector is immutable."""
    spec = obj.get("spec") or {}
    causes = _meta(obj, old) + _counts(spec, "replicas") + _selector(spec, "deployment")
    causes += _replicated_template(spec) + _deployment_strategy(spec.get("strategy") or {})
    causes += _counts(spec, "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline_s = spec.get("progressDeadlineSeconds")
    if deadline_s is not None and deadline_s <= (spec.get("minReadySeconds") or 0):
        causes.append(invalid_value("spec.progressDeadlineSeconds", deadline_s, "must be greater than minReadySeconds"))
    return causes + _same_selector(spec, old)


def validate_replica_set(obj: Json, old: Json | None = None) -> list[Cause]:
    """Validates a ReplicaSet; its selector is immutable."""
    spec = obj.get("spec") or {}
    causes = _meta(obj, old) + _counts(spec, "replicas", "minReadySeconds") + _selector(spec, "deployment")
    return causes + _replicated_template(spec) + _same_selector(spec, old)


def validate_replication_controller(obj: Json, old: Json | None = None) -> list[Cause]:
    """Validates a ReplicationController: like a ReplicaSet, with a plain map of labels as its selector."""
    spec = obj.get("spec") or {}
    causes = _meta(obj, old) + _counts(spec, "minReadySeconds")
    if not spec.get("selector"):
        causes.append(required("spec.selector"))
    causes += _counts(spec, "replicas")
    if spec.get("template") is None:
        return [*causes, required("spec.template")]
    return causes + _template(spec, from_labels(spec.get("selector") or {})) + _always(spec["template"])


def validate_stateful_set(obj: Json, old: Json | None = None) -> list[Cause]:
    """Validates a StatefulSet; few fields of its spec may change."""
    spec = obj.get("spec") or {}
    causes = _meta(obj, old)
    if old and _fixed(spec) != _fixed(old.get("spec") or {}):
        return [*causes, frozen("spec", FIXED_SET)]
    policy, update = spec.get("podManagementPolicy"), spec.get("updateStrategy") or {}
    if policy not in {"OrderedReady", "Parallel"}:
        causes.append(invalid_value("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    rolling, path = update.get("rollingUpdate"), "spec.updateStrategy"
    match update.get("type"):
        case "OnDelete":
            if rolling is not None:
                why = "only allowed for updateStrategy 'RollingUpdate'"
                causes.append(invalid_value(f"{path}.rollingUpdate", rolling, why))
        case "RollingUpdate":
            causes += _stateful_rolling(f"{path}.rollingUpdate", rolling or {})
        case _:
            causes.append(invalid_value(path, update, "must be 'RollingUpdate' or 'OnDelete'"))
    kept = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for field in ("whenDeleted", "whenScaled"):
        if kept.get(field) not in {None, "Retain", "Delete"}:
            where = f"spec.persistentVolumeClaimRetentionPolicy.{field}"
            causes.append(unsupported(where, kept[field], ("Retain", "Delete")))
    causes += _counts(spec, "replicas", "minReadySeconds", "revisionHistoryLimit")
    if start := (spec.get("ordinals") or {}).get("start"):
        causes += [] if start > 0 else [invalid_value("spec.ordinals.start", start, _NOT_NEGATIVE)]
    causes += _selector(spec, "statefulset")
    if name := spec.get("serviceName"):
        causes += [invalid_value("spec.serviceName", name, why) for why in formats.dns_label(name)]
    if unreadable := _unreadable(spec):
        return causes + unreadable
    template = _with_claims(spec)
    causes += _template({**spec, "template": template}) + _always(template)
    if _pod_spec(template).get("activeDeadlineSeconds") is not None:
        seconds = _pod_spec(template)["activeDeadlineSeconds"]
        causes.append(invalid_value("spec.template.spec.activeDeadlineSeconds", seconds, "must not be specified"))
    return causes


def validate_daemon_set(obj: Json, old: Json | None = None) -> list[Cause]:
    """Validates a DaemonSet; its selector is immutable."""
    spec = obj.get("spec") or {}
    causes = _meta(obj, old) + _selector(spec, "daemonset")
    template = spec.get("template") or {}
    causes += _template(spec) + _always(template)
    if (seconds := _pod_spec(template).get("activeDeadlineSeconds")) is not None:
        causes.append(invalid_value("spec.template.spec.activeDeadlineSeconds", seconds, "must not be specified"))
    causes += _counts(spec, "minReadySeconds")
    update = spec.get("updateStrategy") or {}
    match update.get("type"):
        case "OnDelete":
            pass
        case "RollingUpdate":
            causes += _daemon_rolling("spec.updateStrategy.rollingUpdate", update.get("rollingUpdate") or {})
        case _:
            causes.append(unsupported("spec.updateStrategy", update, ("RollingUpdate", "OnDelete")))
    return causes + _counts(spec, "revisionHistoryLimit") + _same_selector(spec, old)


def validate_controller_revision(obj: Json, old: Json | None = None) -> list[Cause]:
    """Validates a ControllerRevision: its data are immutable."""
    causes = _meta(obj, old)
    if obj.get("data") is None:
        causes.append(required("data", "data is mandatory"))
    if (revision := obj.get("revision") or 0) < 0:
        causes.append(invalid_value("revision", revision, _NOT_NEGATIVE))
    if old and obj.get("data") != old.get("data"):
        causes.append(immutable("data", obj.get("data"), IMMUTABLE))
    return causes


def _meta(obj: Json, old: Json | None) -> list[Cause]:
    causes = validate_meta_update(old, obj) if old else []
    return causes + validate_meta(obj, formats.dns_subdomain)


def _counts(spec: Json, *fields: str) -> list[Cause]:
    return [
        invalid_value(f"spec.{field}", spec[field], _NOT_NEGATIVE) for field in fields if (spec.get(field) or 0) < 0
    ]


def _selector(spec: Json, kind: str) -> list[Cause]:
    selector = spec.get("selector")
    if selector is None:
        return [required("spec.selector")]
    causes = validate_label_selector("spec.selector", selector)
    if is_empty(selector):
        causes.append(invalid_value("spec.selector", selector, f"empty selector is invalid for {kind}"))
    return causes


def _same_selector(spec: Json, old: Json | None) -> list[Cause]:
    if old is None or (old.get("spec") or {}).get("selector") == spec.get("selector"):
        return []
    return [immutable("spec.selector", spec.get("selector"), IMMUTABLE)]


def _unreadable(spec: Json) -> list[Cause]:
    """Returns the error of a malformed selector; the template is then not validated."""
    selector = spec.get("selector") or {}
    wrong = validate_label_selector("spec.selector", selector)
    return [invalid_value("spec.selector", selector, "invalid label selector")] if wrong else []


def _pod_spec(template: Json) -> Json:
    spec: Json = template.get("spec") or {}
    return spec


def _replicated_template(spec: Json) -> list[Cause]:
    if unreadable := _unreadable(spec):
        return unreadable
    template = spec.get("template") or {}
    causes = _template(spec) + _always(template)
    if _pod_spec(template).get("activeDeadlineSeconds") is not None:
        why = "activeDeadlineSeconds in ReplicaSet is not Supported"
        causes.append(forbidden("spec.template.spec.activeDeadlineSeconds", why))
    return causes


def _template(spec: Json, selector: Selector | None = None) -> list[Cause]:
    """Validates a template as a Pod. A missing selector selects nothing."""
    metadata = (spec.get("template") or {}).get("metadata") or {}
    if selector is None and spec.get("selector") is not None:
        selector = Selector() if _unreadable(spec) else selector_of(spec["selector"])
    causes = []
    if selector is None or not selector.matches(metadata.get("labels")):
        causes.append(invalid_value("spec.template.metadata.labels", metadata.get("labels"), MISMATCH))
    template = spec.get("template") or {}
    shown = {field: metadata[field] for field in ("labels", "annotations") if metadata.get(field)}
    pod = {"metadata": {"name": "template", "namespace": "template", **shown}, "spec": _pod_spec(template)}
    return causes + [
        replace(cause, field=f"spec.template.{cause.field.removeprefix('metadata.')}") for cause in validate_pod(pod)
    ]


def _always(template: Json) -> list[Cause]:
    policy = _pod_spec(template).get("restartPolicy")
    return [] if policy in {None, "Always"} else [unsupported("spec.template.spec.restartPolicy", policy, ["Always"])]


def _with_claims(spec: Json) -> Json:
    """Returns the template of a StatefulSet with its claims among the volumes, which its containers may mount."""
    template = spec.get("template") or {}
    names = [(claim.get("metadata") or {}).get("name") for claim in spec.get("volumeClaimTemplates") or []]
    if not names:
        return dict(template)
    volumes = [each for each in _pod_spec(template).get("volumes") or [] if each.get("name") not in names]
    volumes += [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    return {**template, "spec": {**_pod_spec(template), "volumes": volumes}}


def _fixed(spec: Json) -> Json:
    """Returns the immutable fields; clients send serviceName as "" if it was not given."""
    return {name: value for name, value in spec.items() if name not in _CHANGEABLE and value != ""}


def _number(value: Any) -> int:
    """Returns a number or percentage as a number, 0 for another text."""
    if isinstance(value, int):
        return value
    found = _PERCENT.fullmatch(str(value))
    return int(found[1]) if found else 0


def validate_int_or_percent(path: str, value: Any) -> list[Cause]:
    """Checks for a number that is not negative, or a percentage (IntOrString)."""
    if value is None:
        return []
    if isinstance(value, str):
        return [] if _PERCENT.fullmatch(value) else [invalid_value(path, value, _NOT_A_PERCENT)]
    return [] if value >= 0 else [invalid_value(path, value, _NOT_NEGATIVE)]


def _at_most_all(path: str, value: Any) -> list[Cause]:
    over = isinstance(value, str) and _PERCENT.fullmatch(value) and _number(value) > 100
    return [invalid_value(path, value, "must not be greater than 100%")] if over else []


def _deployment_strategy(strategy: Json) -> list[Cause]:
    """Validates spec.strategy of a Deployment."""
    rolling, path = strategy.get("rollingUpdate"), "spec.strategy.rollingUpdate"
    match strategy.get("type"):
        case "Recreate":
            why = "may not be specified when strategy `type` is 'Recreate'"
            return [] if rolling is None else [forbidden(path, why)]
        case "RollingUpdate":
            unavailable, surge = (rolling or {}).get("maxUnavailable"), (rolling or {}).get("maxSurge")
            causes = validate_int_or_percent(f"{path}.maxUnavailable", unavailable)
            causes += validate_int_or_percent(f"{path}.maxSurge", surge)
            if not _number(unavailable) and not _number(surge):
                why = "may not be 0 when `maxSurge` is 0"
                causes.append(invalid_value(f"{path}.maxUnavailable", unavailable, why))
            return causes + _at_most_all(f"{path}.maxUnavailable", unavailable)
        case _:
            return [unsupported("spec.strategy", strategy, ("Recreate", "RollingUpdate"))]


def _stateful_rolling(path: str, rolling: Json) -> list[Cause]:
    """Validates the rolling update of a StatefulSet."""
    causes = []
    if (partition := rolling.get("partition") or 0) < 0:
        causes.append(invalid_value(f"{path}.partition", partition, _NOT_NEGATIVE))
    if (unavailable := rolling.get("maxUnavailable")) is not None:
        where = f"{path}.maxUnavailable"
        causes += validate_int_or_percent(where, unavailable)
        if not _number(unavailable):
            causes.append(invalid_value(where, unavailable, "cannot be 0"))
        causes += _at_most_all(where, unavailable)
    return causes


def _daemon_rolling(path: str, rolling: Json) -> list[Cause]:
    """Validates the rolling update of a DaemonSet."""
    causes = []
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    for field, value in (("maxUnavailable", unavailable), ("maxSurge", surge)):
        causes += validate_int_or_percent(f"{path}.{field}", value) + _at_most_all(f"{path}.{field}", value)
    if _number(unavailable) and _number(surge):
        why = "may not be set when maxUnavailable is non-zero"
        causes.append(invalid_value(f"{path}.maxSurge", surge, why))
    elif not _number(unavailable) and not _number(surge):
        causes.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return causes
