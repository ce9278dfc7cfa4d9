"""CustomResourceDefinitions: their defaults, rules (kube-apiserver: apiextensions/validation) and status.

Differs: conversion webhooks are refused. Names that were taken and are free again are accepted at the next write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.conditions import is_true, set_condition
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import (
    duplicate,
    immutable,
    invalid_value,
    invalid_values,
    required,
    too_many,
    unsupported,
)
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.custom import jsonpath
from kdns.controlplane.kinds.validation import IMMUTABLE, validate_metadata
from kdns.controlplane.schema.custom.rules import type_at, violations

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that holds a definition until its objects are gone."""

_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_SELECTABLE_TYPES: Final = ("boolean", "integer", "string")
_SELECTABLE_MAX: Final = 8


def default_definition(definition: Json) -> Json:
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    if kind := names.get("kind"):
        names = {**names, "singular": names.get("singular") or kind.lower()}
        names["listKind"] = names.get("listKind") or f"{kind}List"
    conversion = spec.get("conversion") or {"strategy": "None"}
    return {**definition, "spec": {**spec, "names": names, "conversion": conversion}}


def is_complete(definition: Json) -> bool:
    """Has its names and a storage version, without which it can have no status."""
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    texts = [names.get(field) for field in ("plural", "singular", "kind", "listKind")]
    has_names = all((definition["metadata"].get("name"), spec.get("group"), *texts))
    return has_names and any(version.get("storage") for version in spec.get("versions") or ())


def validate_definition(new: Json, old: Json | None) -> list[Cause]:
    causes = validate_metadata(new, old, namespaced=False, any_finalizer=True)
    spec = new.get("spec") or {}
    return causes + list(_spec(new, spec)) + (list(_changes(old, spec)) if old else [])


def _spec(definition: Json, spec: Json) -> Iterator[Cause]:
    names, group = spec.get("names") or {}, spec.get("group") or ""
    name = definition["metadata"].get("name") or ""
    if name != f"{names.get('plural', '')}.{group}":
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not group:
        yield required("spec.group")
    elif problems := formats.dns_subdomain(group):
        yield from invalid_values("spec.group", group, problems)
    elif "." not in group:
        yield invalid_value("spec.group", group, "should be a domain with at least one dot")
    scope = spec.get("scope") or ""
    if not scope:
        yield required("spec.scope")
    elif scope not in {"Cluster", "Namespaced"}:
        yield unsupported("spec.scope", scope, ("Cluster", "Namespaced"))
    strategy = (spec.get("conversion") or {}).get("strategy") or ""
    if strategy != "None":
        yield unsupported("spec.conversion.strategy", strategy, ("None",))
    yield from _names(names, "spec.names")
    yield from _versions(spec)


def _names(names: Json, path: str) -> Iterator[Cause]:
    for field in ("plural", "singular", "kind", "listKind"):
        text = names.get(field) or ""
        if not text:
            yield required(f"{path}.{field}")
        else:
            shown = text.lower() if field in {"kind", "listKind"} else text
            yield from invalid_values(f"{path}.{field}", text, formats.dns_label_1035(shown))
    for field in ("shortNames", "categories"):
        for index, text in enumerate(names.get(field) or ()):
            yield from invalid_values(f"{path}.{field}[{index}]", text, formats.dns_label_1035(text))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid_value(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")


def _versions(spec: Json) -> Iterator[Cause]:
    versions: list[Json] = spec.get("versions") or []
    if len([version for version in versions if version.get("storage")]) != 1:
        why = "must have exactly one version marked as storage version"
        yield invalid_value("spec.versions", [version.get("name") for version in versions], why)
    names = [version.get("name") or "" for version in versions]
    if len(set(names)) != len(names):
        yield invalid_value("spec.versions", names, "must contain unique version names")
    schemas = [((version.get("schema") or {}).get("openAPIV3Schema")) for version in versions]
    for index, (version, schema) in enumerate(zip(versions, schemas, strict=True)):
        path = f"spec.versions[{index}]"
        yield from invalid_values(f"{path}.name", names[index], formats.dns_label_1035(names[index]))
        for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
            yield from _column(column, f"{path}.additionalPrinterColumns[{number}]")
        if (scale := (version.get("subresources") or {}).get("scale")) is not None:
            yield from _scale(scale, f"{path}.subresources.scale")
        if not schema:
            yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
            continue
        causes = [] if schema in schemas[:index] else violations(schema, f"{path}.schema.openAPIV3Schema")
        yield from causes or _selectable(version, schema, f"{path}.selectableFields")


def _selectable(version: Json, schema: Json, path: str) -> Iterator[Cause]:
    fields = [field.get("jsonPath") or "" for field in version.get("selectableFields") or ()]
    for index, field in enumerate(fields):
        at, names = f"{path}[{index}].jsonPath", jsonpath.field_names(field)
        kind = type_at(schema, names)
        if not names:
            yield invalid_value(at, field, "is an invalid path: must be a simple json path")
        elif kind is None or names[0] == "metadata":
            yield invalid_value(at, field, "is an invalid path: does not refer to a valid field")
        elif kind not in _SELECTABLE_TYPES:
            why = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats"
            )
            yield invalid_value(at, field, f"{why} are allowed.")
        elif field in fields[:index]:
            yield duplicate(at, field)
    if len(set(fields)) > _SELECTABLE_MAX:
        yield too_many(path, len(set(fields)), _SELECTABLE_MAX)


def _column(column: Json, path: str) -> Iterator[Cause]:
    kind, where = column.get("type") or "", column.get("jsonPath") or ""
    if kind not in _COLUMN_TYPES:
        yield invalid_value(f"{path}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}")
    if not where.startswith("."):
        yield invalid_value(f"{path}.jsonPath", where, "must be a simple json path starting with .")


def _scale(scale: Json, path: str) -> Iterator[Cause]:
    for field in ("specReplicasPath", "statusReplicasPath", "labelSelectorPath"):
        text = scale.get(field) or ""
        if (text or field != "labelSelectorPath") and not jsonpath.field_names(text):
            yield invalid_value(f"{path}.{field}", text, "should be a simple json path")


def _changes(old: Json, spec: Json) -> Iterator[Cause]:
    """Group and plural are immutable; once the kind is served, so are its name and scope."""
    before = old.get("spec") or {}
    names, names_before = spec.get("names") or {}, before.get("names") or {}
    fields = [("spec.group", before.get("group"), spec.get("group"))]
    fields.append(("spec.names.plural", names_before.get("plural"), names.get("plural")))
    if is_true(old, "Established"):
        fields.append(("spec.scope", before.get("scope"), spec.get("scope")))
        fields.append(("spec.names.kind", names_before.get("kind"), names.get("kind")))
    for field, stored, sent in fields:
        if stored != sent:
            yield immutable(field, sent, IMMUTABLE)
    known = {version.get("name") for version in spec.get("versions") or ()}
    for index, name in enumerate((old.get("status") or {}).get("storedVersions") or ()):
        if name not in known:
            yield invalid_value(f"status.storedVersions[{index}]", name, "must appear in spec.versions")


def status_of(definition: Json, others: Iterable[Kind], before: Json) -> Json:
    """The status of a definition beside the `others` of its group; `before` is its previous status.

    On a conflict the names that were accepted before stay, so an established kind stays served.
    """
    spec = definition["spec"]
    conflicts = list(_conflicts(spec["names"], tuple(others)))
    accepted = before.get("acceptedNames") or {"plural": "", "kind": ""}
    if not conflicts:
        accepted = {name: value for name, value in spec["names"].items() if value}
    was_established = is_true({"status": before}, "Established")
    is_established = was_established or not conflicts
    rows = [
        ("NamesAccepted", not conflicts, *(conflicts[0] if conflicts else ("NoConflicts", "no conflicts found"))),
        (
            "Established",
            is_established,
            *(
                ("InitialNamesAccepted", "the initial names have been accepted")
                if is_established
                else ("NotAccepted", "not all names are accepted")
            ),
        ),
    ]
    conditions = before.get("conditions") or []
    for row in rows:
        conditions = set_condition(conditions, _condition(*row), _now(definition))
    stored = list(before.get("storedVersions") or ())
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    return {
        "conditions": conditions,
        "acceptedNames": accepted,
        "storedVersions": stored if storage in stored else [*stored, storage],
    }


def with_termination(definition: Json, now: str) -> Json:
    """Sets the condition of a terminating definition that still has objects."""
    status = definition.get("status") or {}
    row = _condition("Terminating", True, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
    return {**definition, "status": {**status, "conditions": set_condition(status.get("conditions") or (), row, now)}}


def _condition(kind: str, holds: bool, reason: str, message: str) -> Json:
    return {"message": message, "reason": reason, "status": "True" if holds else "False", "type": kind}


def _now(definition: Json) -> str:
    """The time of the newest write; a definition without managers was just created."""
    metadata = definition["metadata"]
    times = (entry.get("time") or "" for entry in metadata.get("managedFields") or ())
    return max([metadata.get("creationTimestamp") or "", *times])


def _conflicts(names: Json, others: tuple[Kind, ...]) -> Iterator[tuple[str, str]]:
    taken = {name for kind in others for name in (kind.plural, kind.singular, *kind.short_names)}
    kinds = {name for kind in others for name in (kind.kind, kind.list_kind)}
    singles = (("plural", "PluralConflict", taken), ("singular", "SingularConflict", taken))
    for field, reason, used in (*singles, ("kind", "KindConflict", kinds), ("listKind", "ListKindConflict", kinds)):
        if names[field] in used:
            yield reason, f'"{names[field]}" is already in use'
    if short := [name for name in names.get("shortNames") or () if name in taken]:
        listed = ", ".join(f'"{name}" is already in use' for name in short)
        yield "ShortNamesConflict", listed
