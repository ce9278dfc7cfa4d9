"""The rules of metadata, which all kinds share, and those of LabelSelectors.

Validation functions return causes in the order of kube-apiserver. They neither raise nor change objects.
"""

from __future__ import annotations

from collections.abc import Mapping

from kdns.cluster.selectors import Requirement, Selector
from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import forbidden, immutable, invalid_value, invalid_values, required
from kdns.controlplane.apimachinery.formats import Format
from kdns.controlplane.apimachinery.kinds import Json

ANNOTATIONS_BYTES = 256 * 1024
STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
"""These need no domain."""
_EXCLUSIVE = frozenset({"orphan", "foregroundDeletion"})

IMMUTABLE = "field is immutable"
ONCE_SET = "may not change once set"


def validate_labels(path: str, labels: Mapping[str, str] | None) -> list[Cause]:
    causes = []
    for key, value in (labels or {}).items():
        causes += invalid_values(path, key, formats.qualified_name(key))
        causes += invalid_values(path, value, formats.label_value(value))
    return causes


def validate_meta(obj: Json, name: Format, *, namespaced: bool = True, any_finalizer: bool = False) -> list[Cause]:
    """With `any_finalizer`, finalizers need no domain: those of custom resources often have none."""
    meta = obj.get("metadata") or {}
    causes = []
    if prefix := meta.get("generateName"):
        masked = f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix
        causes += invalid_values("metadata.generateName", prefix, name(masked))
    if meta.get("name"):
        causes += invalid_values("metadata.name", meta["name"], name(meta["name"]))
    else:
        causes.append(required("metadata.name", "name or generateName is required"))
    if namespaced and not meta.get("namespace"):
        causes.append(required("metadata.namespace"))
    elif namespaced:
        causes += invalid_values("metadata.namespace", meta["namespace"], formats.dns_label(meta["namespace"]))
    elif meta.get("namespace"):
        causes.append(forbidden("metadata.namespace", "not allowed on this type"))
    if labels := meta.get("labels"):
        causes += validate_labels("metadata.labels", labels)
    if annotations := meta.get("annotations"):
        causes += _annotations(annotations)
    if owners := meta.get("ownerReferences"):
        causes += _owners(owners)
    if finalizers := meta.get("finalizers"):
        causes += _finalizers(finalizers, is_any=any_finalizer)
    return causes


def validate_metadata(
    obj: Json,
    old: Json | None = None,
    name: Format = formats.dns_subdomain,
    *,
    namespaced: bool = True,
    any_finalizer: bool = False,
) -> list[Cause]:
    """`validate_meta`, and `validate_meta_update` on update."""
    causes = validate_meta_update(old, obj) if old else []
    return causes + validate_meta(obj, name, namespaced=namespaced, any_finalizer=any_finalizer)


def _finalizers(finalizers: list[str], *, is_any: bool) -> list[Cause]:
    path = "metadata.finalizers"
    causes = [cause for name in finalizers for cause in invalid_values(path, name, formats.qualified_name(name))]
    if {*finalizers} >= _EXCLUSIVE:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        causes.append(invalid_value(path, finalizers, detail))
    return causes + [
        cause
        for index, name in enumerate(() if is_any else finalizers)
        for cause in _unknown_finalizers(f"metadata.finalizers[{index}]", name)
    ]


def finalizer_causes(path: str, name: str) -> list[Cause]:
    """A finalizer is a qualified name, and has a domain unless it is a standard one."""
    return invalid_values(path, name, formats.qualified_name(name)) + _unknown_finalizers(path, name)


def _unknown_finalizers(path: str, name: str) -> list[Cause]:
    if "/" in name or name in STANDARD_FINALIZERS:
        return []
    return [invalid_value(path, name, "name is neither a standard finalizer name nor is it fully qualified")]


def _annotations(annotations: Mapping[str, str]) -> list[Cause]:
    causes, total = [], 0
    for key, value in annotations.items():
        causes += invalid_values("metadata.annotations", key, formats.qualified_name(key.lower()))
        total += len(key) + len(value)
    if total > ANNOTATIONS_BYTES:
        causes.append(Cause("metadata.annotations", "Too long", f"may not be more than {ANNOTATIONS_BYTES} bytes"))
    return causes


def _owners(owners: list[Json]) -> list[Cause]:
    """Paths lack the index of the owner, as in kube-apiserver."""
    path, causes, first = "metadata.ownerReferences", [], ""
    for owner in owners:
        group_version = owner.get("apiVersion") or ""
        if not _version(group_version):
            causes.append(invalid_value(f"{path}.apiVersion", group_version, "version must not be empty"))
        causes += [
            invalid_value(f"{path}.{key}", "", "must not be empty")
            for key in ("kind", "name", "uid")
            if not owner.get(key)
        ]
        if (group_version, owner.get("kind")) == ("v1", "Event"):
            shown = {"apiVersion": group_version, **owner}  # in the order of Go's struct
            causes.append(invalid_value(path, shown, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            this = f"{owner.get('kind') or ''}/{owner.get('name') or ''}"
            detected = f'Found "true" in references for {first} and {this}'
            if first:
                detail = f"Only one reference can have Controller set to true. {detected}"
                causes.append(invalid_value(path, owners, detail))
            first = first or this
    return causes


def _version(group_version: str) -> str:
    """The version in an apiVersion; "" if there is more than one slash."""
    return group_version.rpartition("/")[2] if group_version.count("/") <= 1 else ""


def validate_meta_update(old: Json, new: Json) -> list[Cause]:
    """The identity does not change, and a terminating object gets no new finalizers."""
    before, after = old.get("metadata") or {}, new.get("metadata") or {}
    return _new_finalizers(before, after) + [
        immutable(f"metadata.{key}", after.get(key, ""), IMMUTABLE)
        for key in ("name", "namespace", "uid", "creationTimestamp")
        if before.get(key) != after.get(key)
    ]


def _new_finalizers(before: Json, after: Json) -> list[Cause]:
    more = set(after.get("finalizers") or ()) - set(before.get("finalizers") or ())
    if not (more and before.get("deletionTimestamp")):
        return []
    names = ", ".join(f'"{finalizer}"' for finalizer in sorted(more))
    why = "no new finalizers can be added if the object is being deleted, found new finalizers"
    return [forbidden("metadata.finalizers", f"{why} {names}")]


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def selector_of(label_selector: Json) -> Selector:
    """An empty LabelSelector selects everything. Raises KeyError for an unknown operator."""
    labels = sorted((label_selector.get("matchLabels") or {}).items())
    expressions = label_selector.get("matchExpressions") or []
    return Selector(
        (
            *(Requirement(key, "=", (value,)) for key, value in labels),
            *(
                Requirement(row["key"], _OPERATORS[row["operator"]], tuple(row.get("values") or ()))
                for row in expressions
            ),
        )
    )


def validate_label_selector(path: str, label_selector: Json) -> list[Cause]:
    """Labels, operators, and values if and only if the operator takes them."""
    causes = validate_labels(f"{path}.matchLabels", label_selector.get("matchLabels"))
    for index, row in enumerate(label_selector.get("matchExpressions") or []):
        at, operator, values = f"{path}.matchExpressions[{index}]", row.get("operator") or "", row.get("values") or []
        if operator not in _OPERATORS:
            causes.append(invalid_value(f"{at}.operator", operator, "not a valid selector operator"))
        elif operator in {"In", "NotIn"} and not values:
            causes.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in {"Exists", "DoesNotExist"} and values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(forbidden(f"{at}.values", why))
        causes += invalid_values(f"{at}.key", row.get("key") or "", formats.qualified_name(row.get("key") or ""))
        for position, value in enumerate(values):
            causes += invalid_values(f"{at}.values[{position}]", value, formats.label_value(value))
    return causes


def is_empty(label_selector: Json) -> bool:
    return not (label_selector.get("matchLabels") or label_selector.get("matchExpressions"))


def selector_text(selector: Json) -> str:
    """A LabelSelector, or a plain map of labels, as the value of a labelSelector parameter."""
    if not {"matchLabels", "matchExpressions"} & set(selector):
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    parts += [(row.get("key", ""), _requirement(row)) for row in selector.get("matchExpressions") or ()]
    return ",".join(text for _, text in sorted(parts))


def _requirement(expression: Json) -> str:
    key, values = expression.get("key", ""), ",".join(sorted(expression.get("values") or ()))
    match expression.get("operator"):
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "Exists":
            return str(key)
        case _:
            return f"!{key}"
