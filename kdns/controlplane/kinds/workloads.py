"""Workloads: ReplicationControllers, the kinds of apps/v1, and Jobs; their Pods are simulated.

The rules are those without which no Pods could be created, and the immutable fields. Differs: further rules of
kube-apiserver, such as those of indexes and failure policies, are not applied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kdns.cluster.selectors import Selector, from_labels
from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.annotations import annotated_number
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import (
    forbidden,
    frozen,
    immutable,
    invalid_value,
    required,
    unsupported,
)
from kdns.controlplane.apimachinery.kinds import (
    CONTROLLER_REVISION,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    Json,
    Kind,
)
from kdns.controlplane.kinds import warnings
from kdns.controlplane.kinds.columns import printer_of
from kdns.controlplane.kinds.defaults import filler
from kdns.controlplane.kinds.pod.defaults import default_pod_template
from kdns.controlplane.kinds.pod.validation import validate_pod
from kdns.controlplane.kinds.strategy import (
    COMMON,
    DeleteStrategy,
    Strategy,
    SubresourceStrategy,
    on_create,
    with_metadata_of_old,
    with_status,
)
from kdns.controlplane.kinds.validation import (
    IMMUTABLE,
    is_empty,
    selector_of,
    validate_label_selector,
    validate_metadata,
)
from kdns.controlplane.storage.field_selectors import FieldLabels, count

ROLLING_UPDATE: Final = "RollingUpdate"
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
"""The annotation that counts the changes of a DaemonSet's template; its Pods have the count as a label."""

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
NOT_NEGATIVE: Final = "must be greater than or equal to 0"
MISMATCH: Final = "`selector` does not match template `labels`"
_PERCENT: Final = re.compile(r"([0-9]{1,9})%")
_COUNTS: Final = (
    *("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"),
    *("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"),
)
_FIXED_OF_JOB: Final = ("completions", "selector", "template", "completionMode", "managedBy")
_CHANGEABLE: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
POD_MANAGEMENT_POLICIES: Final = ("OrderedReady", "Parallel")
FIXED_SET: Final = (
    f"updates to statefulset spec for fields other than {', '.join(map(repr, _CHANGEABLE[:-1]))} "
    f"and {_CHANGEABLE[-1]!r} are forbidden"
)


def default_template(template: Json) -> Json:
    return {
        "metadata": template.get("metadata") or {},
        "spec": default_pod_template({"spec": template.get("spec") or {}})["spec"],
    }


def _defaults(rows: Mapping[str, object], strategy: str = "", rolling: Json | None = None) -> Callable[[Json], Json]:
    """Defaults of a spec, of its template, and of a rolling update in its field `strategy`."""
    fill = filler({f"{strategy}.type": ROLLING_UPDATE, **rows} if strategy else rows)

    def defaults(obj: Json) -> Json:
        spec = fill({**({strategy: {}} if strategy else {}), **(obj.get("spec") or {})})
        if strategy and spec[strategy]["type"] == ROLLING_UPDATE:
            spec[strategy]["rollingUpdate"] = {**(rolling or {}), **(spec[strategy].get("rollingUpdate") or {})}
        return {**obj, "spec": {**spec, "template": default_template(spec.get("template") or {})}}

    return defaults


_HISTORY: Final = {"revisionHistoryLimit": 10}
_deployment_defaults: Final = _defaults(
    {"replicas": 1, "progressDeadlineSeconds": 600, **_HISTORY},
    "strategy",
    {"maxUnavailable": "25%", "maxSurge": "25%"},
)
_replica_set_defaults: Final = _defaults({"replicas": 1})
_stateful_set_defaults: Final = _defaults(
    {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "volumeClaimTemplates.apiVersion": "v1",
        "volumeClaimTemplates.kind": "PersistentVolumeClaim",
        "volumeClaimTemplates.spec.volumeMode": "Filesystem",
        "volumeClaimTemplates.status.phase": "Pending",
        **_HISTORY,
    },
    "updateStrategy",
    {"partition": 0},
)
_daemon_set_defaults: Final = _defaults(_HISTORY, "updateStrategy", {"maxUnavailable": 1, "maxSurge": 0})
_job_spec_defaults: Final = _defaults(
    {
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
)


def _with_labels_of_template(obj: Json) -> Json:
    """An object without labels gets those of its template."""
    labels = ((obj["spec"].get("template") or {}).get("metadata") or {}).get("labels")
    metadata = obj.get("metadata") or {}
    return obj if metadata.get("labels") or not labels else {**obj, "metadata": {**metadata, "labels": labels}}


def _replication_controller_defaults(obj: Json) -> Json:
    if not (obj.get("spec") or {}).get("template"):
        return {**obj, "spec": {"replicas": 1, **(obj.get("spec") or {})}}
    obj = _with_labels_of_template(_replica_set_defaults(obj))
    spec = obj["spec"]
    labels = spec["template"]["metadata"].get("labels")
    return obj if spec.get("selector") or not labels else {**obj, "spec": {**spec, "selector": labels}}


def _job_defaults(obj: Json) -> Json:
    spec = obj.get("spec") or {}
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec = {**spec, "completions": 1}
    return _with_labels_of_template(_job_spec_defaults({**obj, "spec": spec}))


def counted_template(new: Json, old: Json | None) -> Json:
    metadata = new["metadata"]
    generation = 1
    if old is not None:
        changed = (old.get("spec") or {}).get("template") != (new.get("spec") or {}).get("template")
        generation = (annotated_number(old, TEMPLATE_GENERATION) or 1) + int(changed)
    annotations = {**(metadata.get("annotations") or {}), TEMPLATE_GENERATION: str(generation)}
    return {**new, "metadata": {**metadata, "annotations": annotations}}


def with_job_selector(obj: Json) -> Json:
    """Unless manualSelector is set, a new Job has its uid as selector, and uid and name as Pod labels."""
    spec, metadata = obj["spec"], obj["metadata"]
    if spec.get("manualSelector"):
        return obj
    uid, name = metadata["uid"], metadata.get("name") or ""
    own = {CONTROLLER_UID: uid, "batch.kubernetes.io/job-name": name, "controller-uid": uid, "job-name": name}
    template = spec["template"]
    of_template = template.get("metadata") or {}
    labels = {**(of_template.get("labels") or {}), **own}
    selector = spec.get("selector") or {"matchLabels": {CONTROLLER_UID: uid}}
    template = {**template, "metadata": {**of_template, "labels": labels}}
    return _with_labels_of_template({**obj, "spec": {**spec, "selector": selector, "template": template}})


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules of one kind: who creates its Pods, field and types of its strategy ("" for none), and further rules.

    `further` gets the spec, and on update the stored one.
    """

    maker: str
    strategy: str = ""
    types: tuple[str, ...] = (ROLLING_UPDATE, "OnDelete")
    further: Callable[[Json, Json | None], Iterator[Cause]] = lambda _spec, _old: iter(())

    def validate(self, obj: Json, old: Json | None = None) -> list[Cause]:
        spec, stored = obj.get("spec") or {}, (old or {}).get("spec") or {}
        causes = [*validate_metadata(obj, old), *_negative_counts(spec), *_selector_and_template(spec)]
        if not spec.get("template"):
            causes.append(required("spec.template"))
        elif (policy := spec["template"]["spec"].get("restartPolicy")) not in {None, "Always"}:
            causes.append(unsupported("spec.template.spec.restartPolicy", policy, ["Always"]))
        if (spec.get("template") or {}).get("spec", {}).get("activeDeadlineSeconds") is not None:
            why = f"activeDeadlineSeconds in {self.maker} is not Supported"
            causes.append(forbidden("spec.template.spec.activeDeadlineSeconds", why))
        if self.strategy:
            causes += _strategy_causes(f"spec.{self.strategy}", spec.get(self.strategy) or {}, self.types)
        causes += self.further(spec, stored if old else None)
        if old and stored.get("selector") != spec.get("selector"):
            causes.append(immutable("spec.selector", spec.get("selector"), IMMUTABLE))
        return causes


def _deployment(spec: Json, _old: Json | None) -> Iterator[Cause]:
    if (deadline_s := spec.get("progressDeadlineSeconds")) is not None and deadline_s <= (
        spec.get("minReadySeconds") or 0
    ):
        yield invalid_value("spec.progressDeadlineSeconds", deadline_s, "must be greater than minReadySeconds")
    rolling, path = _rolling(spec, "strategy"), "spec.strategy.rollingUpdate.maxUnavailable"
    yield from _above_100_percent(path, rolling.get("maxUnavailable"))
    if rolling and not any(_number(rolling.get(field)) for field in ("maxUnavailable", "maxSurge")):
        yield invalid_value(path, rolling.get("maxUnavailable"), "may not be 0 when `maxSurge` is 0")


def _daemon_set(spec: Json, _old: Json | None) -> Iterator[Cause]:
    rolling, path = _rolling(spec, "updateStrategy"), "spec.updateStrategy.rollingUpdate"
    numbers = {field: _number(rolling.get(field)) for field in ("maxUnavailable", "maxSurge")}
    for field in numbers:
        yield from _above_100_percent(f"{path}.{field}", rolling.get(field))
    if all(numbers.values()):
        yield invalid_value(f"{path}.maxSurge", rolling["maxSurge"], "may not be set when maxUnavailable is non-zero")
    elif rolling and not any(numbers.values()):
        yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def _stateful_set(spec: Json, old: Json | None) -> Iterator[Cause]:
    if (start := (spec.get("ordinals") or {}).get("start") or 0) < 0:
        yield invalid_value("spec.ordinals.start", start, NOT_NEGATIVE)
    most, path = _rolling(spec, "updateStrategy").get("maxUnavailable"), "spec.updateStrategy.rollingUpdate"
    yield from _above_100_percent(f"{path}.maxUnavailable", most)
    if most is not None and not _number(most):
        yield invalid_value(f"{path}.maxUnavailable", most, "cannot be 0")
    if old is not None and _fixed(spec) != _fixed(old):
        yield frozen("spec", FIXED_SET)
    if (policy := spec.get("podManagementPolicy")) not in POD_MANAGEMENT_POLICIES:
        yield unsupported("spec.podManagementPolicy", policy, POD_MANAGEMENT_POLICIES)
    if name := spec.get("serviceName"):
        yield from (invalid_value("spec.serviceName", name, why) for why in formats.dns_label(name))


def _fixed(spec: Json) -> Json:
    """The immutable fields. Clients send serviceName as "" if it is not set."""
    return {name: value for name, value in spec.items() if name not in _CHANGEABLE and value != ""}


def _negative_counts(spec: Json) -> list[Cause]:
    return [
        invalid_value(f"spec.{field}", spec[field], NOT_NEGATIVE) for field in _COUNTS if (spec.get(field) or 0) < 0
    ]


def _selector_and_template(spec: Json) -> list[Cause]:
    """The selector must select the Pods of the template.

    The selector of a ReplicationController is a plain map of labels.
    """
    selector, template = spec.get("selector"), spec.get("template") or {}
    causes: list[Cause] = []
    if selector is None:
        causes.append(required("spec.selector"))
    else:
        is_map = bool(selector) and not {"matchLabels", "matchExpressions"} & set(selector)
        causes += [] if is_map else validate_label_selector("spec.selector", selector)
        if not is_map and is_empty(selector):
            causes.append(invalid_value("spec.selector", selector, "must not be empty"))
        labels = (template.get("metadata") or {}).get("labels")
        if not causes and template:
            parsed: Selector = from_labels(selector) if is_map else selector_of(selector)
            if not parsed.matches(labels):
                causes.append(invalid_value("spec.template.metadata.labels", labels, MISMATCH))
    return causes + (_template(template, spec.get("volumeClaimTemplates") or ()) if template else [])


def _template(template: Json, claims: Iterable[Json]) -> list[Cause]:
    """Checks a template like a Pod whose volumes include the claims of a StatefulSet."""
    metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
    names = [(claim.get("metadata") or {}).get("name") or "" for claim in claims]
    volumes = [volume for volume in pod.get("volumes") or () if volume.get("name") not in names]
    volumes += [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    shown = {field: metadata[field] for field in ("labels", "annotations") if metadata.get(field)}
    sample = {
        "metadata": {"name": "template", "namespace": "template", **shown},
        "spec": {**pod, "volumes": volumes},
    }
    return [
        replace(cause, field=f"spec.template.{cause.field.removeprefix('metadata.')}") for cause in validate_pod(sample)
    ]


def _strategy_causes(path: str, strategy: Json, types: tuple[str, ...]) -> Iterator[Cause]:
    if strategy.get("type") not in types:
        yield unsupported(f"{path}.type", strategy.get("type"), types)
        return
    rolling, path = strategy.get("rollingUpdate"), f"{path}.rollingUpdate"
    if strategy["type"] != ROLLING_UPDATE:
        if rolling is not None:
            yield forbidden(path, f"may not be specified when the type is {strategy['type']!r}")
        return
    rolling = rolling or {}
    for field in ("partition", "maxUnavailable", "maxSurge"):
        value = rolling.get(field)
        if isinstance(value, str) and not _PERCENT.fullmatch(value):
            yield invalid_value(f"{path}.{field}", value, "must be a number or a percentage such as 25%")
        elif isinstance(value, int) and value < 0:
            yield invalid_value(f"{path}.{field}", value, NOT_NEGATIVE)


def _rolling(spec: Json, strategy: str) -> Json:
    """The settings of a rolling update; {} for another strategy."""
    settings = spec.get(strategy) or {}
    return (settings.get("rollingUpdate") or {}) if settings.get("type") == ROLLING_UPDATE else {}


def _above_100_percent(path: str, value: Any) -> Iterator[Cause]:
    if isinstance(value, str) and _number(value) > 100:
        yield invalid_value(path, value, "must not be greater than 100%")


def _number(value: Any) -> int:
    """A number or percentage as a number, 0 for other text."""
    if isinstance(value, int):
        return value
    match = _PERCENT.fullmatch(str(value))
    return int(match[1]) if match else 0


def validate_job(obj: Json, old: Json | None = None) -> list[Cause]:
    """The template of a suspended Job may change until it has started."""
    spec = obj.get("spec") or {}
    causes = [*validate_metadata(obj, old), *_negative_counts(spec)]
    generated = {"matchLabels": {CONTROLLER_UID: obj["metadata"].get("uid", "")}}
    if not old and not spec.get("manualSelector") and spec.get("selector") not in (None, generated):
        causes.append(invalid_value("spec.selector", spec["selector"], "`selector` not auto-generated"))
    else:
        causes += _selector_and_template(spec)
    if ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy") in {None, "", "Always"}:
        causes.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    if old:
        stored = old.get("spec") or {}
        may_change = {"template"} if stored.get("suspend") and not (old.get("status") or {}).get("startTime") else set()
        causes += [
            immutable(f"spec.{field}", spec.get(field), IMMUTABLE)
            for field in _FIXED_OF_JOB
            if field not in may_change and spec.get(field) != stored.get(field)
        ]
    return causes


_TEMPLATE_COLUMNS: Final = (
    "Containers*=spec.template.spec.containers.name",
    "Images*=spec.template.spec.containers.image",
    "Selector*=spec.selector|<none>",
)
_REPLICAS_PRINTER: Final = printer_of(
    ("Desired=spec.replicas|0", "Current=status.replicas|0", "Ready=status.readyReplicas|0", "Age", *_TEMPLATE_COLUMNS)
)
_NO_REPLICAS: Final = on_create(with_status({"replicas": 0}))
_NO_DAEMONS: Final = on_create(
    with_status({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0})
)
_MAKES_OBJECTS: Final = DeleteStrategy(makes_objects=True)

STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    DEPLOYMENT: Strategy(
        _Rules("ReplicaSet", "strategy", ("Recreate", ROLLING_UPDATE), _deployment).validate,
        printer_of(
            (
                "Ready=status.readyReplicas|0/spec.replicas|0",
                "Up-to-date=status.updatedReplicas|0",
                "Available=status.availableReplicas|0",
                "Age",
                *_TEMPLATE_COLUMNS,
            )
        ),
        defaults=_deployment_defaults,
        prepare=on_create(with_status({})),
        subresources={"status": SubresourceStrategy(prepare=with_metadata_of_old("labels"))},
        delete=_MAKES_OBJECTS,
    ),
    REPLICA_SET: Strategy(
        _Rules("ReplicaSet").validate,
        _REPLICAS_PRINTER,
        defaults=_replica_set_defaults,
        prepare=_NO_REPLICAS,
        delete=_MAKES_OBJECTS,
    ),
    REPLICATION_CONTROLLER: Strategy(
        _Rules("ReplicationController").validate,
        _REPLICAS_PRINTER,
        defaults=_replication_controller_defaults,
        prepare=_NO_REPLICAS,
        field_labels=FieldLabels({**COMMON, "status.replicas": count("status.replicas")}),
        delete=DeleteStrategy(orphans=True, makes_objects=True),
    ),
    STATEFUL_SET: Strategy(
        _Rules("StatefulSet", "updateStrategy", further=_stateful_set).validate,
        printer_of(("Ready=status.readyReplicas|0/spec.replicas|0", "Age", *_TEMPLATE_COLUMNS)),
        defaults=_stateful_set_defaults,
        prepare=on_create(with_status({"availableReplicas": 0, "replicas": 0})),
        delete=_MAKES_OBJECTS,
    ),
    DAEMON_SET: Strategy(
        _Rules("DaemonSet", "updateStrategy", further=_daemon_set).validate,
        printer_of(
            (
                "Desired=status.desiredNumberScheduled|0",
                "Current=status.currentNumberScheduled|0",
                "Ready=status.numberReady|0",
                "Up-to-date=status.updatedNumberScheduled|0",
                "Available=status.numberAvailable|0",
                "Age",
                *_TEMPLATE_COLUMNS,
            )
        ),
        defaults=_daemon_set_defaults,
        prepare=lambda new, old: _NO_DAEMONS(counted_template(new, old), old),
        delete=_MAKES_OBJECTS,
    ),
    CONTROLLER_REVISION: Strategy(
        validate_metadata,
        printer_of(("Controller=metadata.ownerReferences.name|<none>", "Revision=revision|0", "Age")),
        generation=None,
    ),
    JOB: Strategy(
        validate_job,
        printer_of(
            (
                "Status=@Complete,Failed,Suspended|Running",
                "Completions=status.succeeded|0/spec.completions|1",
                "Active=status.active|0",
                "Age",
                *_TEMPLATE_COLUMNS,
            )
        ),
        defaults=_job_defaults,
        prepare=on_create(with_job_selector, with_status({})),
        field_labels=FieldLabels(
            {**COMMON, "status.successful": count("status.succeeded")},
            'field label "{}" not supported for Job',
        ),
        delete=DeleteStrategy(orphans=True, warning=warnings.JOBS_ORPHAN, makes_objects=True),
    ),
}
