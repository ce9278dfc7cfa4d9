"""The rules of workloads: counts, the selector and its template, the strategy, and what is immutable.

Differs: causes come in one order for all kinds, and in fewer words than those of kube-apiserver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

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

NOT_NEGATIVE: Final = "must be greater than or equal to 0"
MISMATCH: Final = "`selector` does not match template `labels`"
_NOT_A_PERCENT: Final = "must be a number or a percentage such as 25%"
_PERCENT: Final = re.compile(r"([0-9]{1,9})%")
_COUNTS: Final = ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
_CHANGEABLE: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
FIXED_SET: Final = (
    f"updates to statefulset spec for fields other than {', '.join(map(repr, _CHANGEABLE[:-1]))} "
    f"and {_CHANGEABLE[-1]!r} are forbidden"
)


@dataclass(frozen=True, slots=True)
class WorkloadRules:
    """The rules of one kind: the field and the types of its strategy, "" for none; and further ones."""

    strategy: str = ""
    types: tuple[str, ...] = ("RollingUpdate", "OnDelete")
    further: Callable[[Json, Json | None], Iterator[Cause]] = lambda _spec, _old: iter(())

    def validate(self, obj: Json, old: Json | None = None) -> list[Cause]:
        spec, stored = obj.get("spec") or {}, (old or {}).get("spec") or {}
        causes = [*validate_metadata(obj, old), *negative_counts(spec, _COUNTS), *_selector(spec)]
        causes += _template(spec)
        if self.strategy:
            causes += _strategy(f"spec.{self.strategy}", spec.get(self.strategy) or {}, self.types)
        causes += self.further(spec, stored if old else None)
        if old and stored.get("selector") != spec.get("selector"):
            causes.append(immutable("spec.selector", spec.get("selector"), IMMUTABLE))
        return causes


def _deployment(spec: Json, _old: Json | None) -> Iterator[Cause]:
    deadline_s = spec.get("progressDeadlineSeconds")
    if deadline_s is not None and deadline_s <= (spec.get("minReadySeconds") or 0):
        yield invalid_value("spec.progressDeadlineSeconds", deadline_s, "must be greater than minReadySeconds")


def _stateful_set(spec: Json, old: Json | None) -> Iterator[Cause]:
    if old is not None and _fixed(spec) != _fixed(old):
        yield frozen("spec", FIXED_SET)
    policy = spec.get("podManagementPolicy")
    if policy not in {"OrderedReady", "Parallel"}:
        yield unsupported("spec.podManagementPolicy", policy, ("OrderedReady", "Parallel"))
    if (start := (spec.get("ordinals") or {}).get("start") or 0) < 0:
        yield invalid_value("spec.ordinals.start", start, NOT_NEGATIVE)
    if name := spec.get("serviceName"):
        yield from (invalid_value("spec.serviceName", name, why) for why in formats.dns_label(name))


def _daemon_set(spec: Json, _old: Json | None) -> Iterator[Cause]:
    rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    if _number(rolling.get("maxSurge")) and _number(rolling.get("maxUnavailable")):
        path = "spec.updateStrategy.rollingUpdate.maxSurge"
        yield invalid_value(path, rolling["maxSurge"], "may not be set when maxUnavailable is non-zero")


def _fixed(spec: Json) -> Json:
    """Returns the immutable fields; clients send serviceName as "" if it was not given."""
    return {name: value for name, value in spec.items() if name not in _CHANGEABLE and value != ""}


validate_deployment = WorkloadRules("strategy", ("Recreate", "RollingUpdate"), _deployment).validate
validate_replica_set = validate_replication_controller = WorkloadRules().validate
validate_stateful_set = WorkloadRules("updateStrategy", further=_stateful_set).validate
validate_daemon_set = WorkloadRules("updateStrategy", further=_daemon_set).validate


def validate_controller_revision(obj: Json, old: Json | None = None) -> list[Cause]:
    """Validates a ControllerRevision: its data are immutable."""
    causes = validate_metadata(obj, old)
    if obj.get("data") is None:
        causes.append(required("data", "data is mandatory"))
    if old and obj.get("data") != old.get("data"):
        causes.append(immutable("data", obj.get("data"), IMMUTABLE))
    return causes


def validate_metadata(obj: Json, old: Json | None) -> list[Cause]:
    causes = validate_meta_update(old, obj) if old else []
    return causes + validate_meta(obj, formats.dns_subdomain)


def negative_counts(spec: Json, fields: tuple[str, ...]) -> list[Cause]:
    return [invalid_value(f"spec.{field}", spec[field], NOT_NEGATIVE) for field in fields if (spec.get(field) or 0) < 0]


def _is_map(selector: Json) -> bool:
    """Returns whether the selector is a plain map of labels, as that of a ReplicationController."""
    return bool(selector) and not {"matchLabels", "matchExpressions"} & set(selector)


def _selector(spec: Json) -> list[Cause]:
    selector = spec.get("selector")
    if selector is None:
        return [required("spec.selector")]
    causes = [] if _is_map(selector) else validate_label_selector("spec.selector", selector)
    if is_empty(selector) and not _is_map(selector):
        causes.append(invalid_value("spec.selector", selector, "must not be empty"))
    return causes


def _template(spec: Json) -> list[Cause]:
    """Validates the template as a Pod that runs forever; a set's claims are among the volumes that it may mount."""
    if spec.get("template") is None:
        return [required("spec.template")]
    template, selector = spec["template"], spec.get("selector") or {}
    metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
    causes: list[Cause] = []
    if not _selector(spec):
        parsed: Selector = from_labels(selector) if _is_map(selector) else selector_of(selector)
        if not parsed.matches(metadata.get("labels")):
            causes.append(invalid_value("spec.template.metadata.labels", metadata.get("labels"), MISMATCH))
    claims = [(claim.get("metadata") or {}).get("name") or "" for claim in spec.get("volumeClaimTemplates") or ()]
    volumes = [volume for volume in pod.get("volumes") or () if volume.get("name") not in claims]
    volumes += [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    causes += validate_template(template, {**pod, "volumes": volumes})
    if (policy := pod.get("restartPolicy")) not in {None, "Always"}:
        causes.append(unsupported("spec.template.spec.restartPolicy", policy, ["Always"]))
    if (seconds := pod.get("activeDeadlineSeconds")) is not None:
        causes.append(invalid_value("spec.template.spec.activeDeadlineSeconds", seconds, "must not be specified"))
    return causes


def validate_template(template: Json, pod_spec: Json) -> list[Cause]:
    """Validates labels and annotations of a template, and the spec of its Pods."""
    metadata = template.get("metadata") or {}
    shown = {field: metadata[field] for field in ("labels", "annotations") if metadata.get(field)}
    pod = {"metadata": {"name": "template", "namespace": "template", **shown}, "spec": pod_spec}
    return [
        replace(cause, field=f"spec.template.{cause.field.removeprefix('metadata.')}") for cause in validate_pod(pod)
    ]


def _strategy(path: str, strategy: Json, types: tuple[str, ...]) -> Iterator[Cause]:
    rolling, path = strategy.get("rollingUpdate"), f"{path}.rollingUpdate"
    if strategy.get("type") not in types:
        yield unsupported(path.removesuffix(".rollingUpdate") + ".type", strategy.get("type"), types)
        return
    if strategy["type"] != "RollingUpdate":
        if rolling is not None:
            yield forbidden(path, f"may not be specified when the type is {strategy['type']!r}")
        return
    rolling = rolling or {}
    for field in ("partition", "maxUnavailable", "maxSurge"):
        yield from _int_or_percent(f"{path}.{field}", rolling.get(field), is_share=field != "maxSurge")
    if "maxUnavailable" in rolling and not _number(rolling["maxUnavailable"]) and not _number(rolling.get("maxSurge")):
        yield invalid_value(f"{path}.maxUnavailable", rolling["maxUnavailable"], "may not be 0 when `maxSurge` is 0")


def _int_or_percent(path: str, value: Any, *, is_share: bool) -> Iterator[Cause]:
    """Checks for a number that is not negative, or a percentage (IntOrString), of a share at most 100%."""
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            yield invalid_value(path, value, _NOT_A_PERCENT)
        elif is_share and _number(value) > 100:
            yield invalid_value(path, value, "must not be greater than 100%")
    elif value is not None and value < 0:
        yield invalid_value(path, value, NOT_NEGATIVE)


def _number(value: Any) -> int:
    """Returns a number or percentage as a number, 0 for another text."""
    if isinstance(value, int):
        return value
    match = _PERCENT.fullmatch(str(value))
    return int(match[1]) if match else 0
