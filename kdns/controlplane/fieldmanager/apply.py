"""Server-side apply: the object that results from a configuration, and conflicts with other managers.

Kubernetes documentation, "Server-Side Apply". A field that a manager applied before and does not apply now is removed
unless another manager owns it too. A value that another manager owns is changed by force only.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from kdns.controlplane.apimachinery.errors import StatusError, bad_request
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.fieldmanager import managed_fields
from kdns.controlplane.fieldmanager.compare import Comparison, compare, configured_paths
from kdns.controlplane.fieldmanager.field_sets import (
    FieldSet,
    difference,
    intersection,
    path_text,
    paths,
    recursive_difference,
    sorted_elements,
    union,
)
from kdns.controlplane.fieldmanager.managed_fields import Entries, Writer
from kdns.controlplane.fieldmanager.merge import merge, structure_errors, with_named_parents, without
from kdns.controlplane.fieldmanager.structure import Structure, StructureError, structure_of

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which client-side apply stores its configuration."""

_KUBECTL = "kubectl"
_BEFORE_FIRST_APPLY = "before-first-apply"
_ANNOTATIONS_BYTES_MAX = 256 * 1024

Conflicts: TypeAlias = list[tuple[Json, FieldSet]]
"""Entries of other managers and the paths of theirs that an apply changes."""


def apply(kind: Kind, live: Json | None, config: Json, writer: Writer, *, force: bool) -> Json:
    """Returns the live object with a configuration applied and its managedFields; `live` is None for a new object.

    `check_kind` comes first. Raises 500 for a configuration that does not match the schema, 409 for conflicts.
    """
    check_structure(kind, config)
    entries: Entries = []
    if live is not None:
        entries = live["metadata"].get("managedFields") or managed_fields.entries_of_new(
            kind, live, Writer(_BEFORE_FIRST_APPLY, time=writer.time)
        )
    obj, owned, change = _merge(kind, live or {}, config, entries, writer)
    others = [entry for entry in entries if managed_fields.identity(entry) != _identity(writer)]
    overlaps = ((entry, intersection(entry["fieldsV1"], change.written)) for entry in others)
    conflicts = [(entry, fields) for entry, fields in overlaps if fields]
    if conflicts and not force and not _is_upgrade(kind, live or {}, writer, conflicts):
        raise _conflict_error(conflicts)
    remaining = managed_fields.entries_without(kind, others, union(change.written, change.removed))
    own = [_own_entry(kind, owned, entries, writer, changes=bool(change.written or change.removed))] if owned else []
    metadata = {**(obj.get("metadata") or {}), "managedFields": managed_fields.sorted_entries([*remaining, *own])}
    _update_last_applied(metadata, config, writer)
    return {**obj, "metadata": metadata}


def _own_entry(kind: Kind, owned: FieldSet, entries: Entries, writer: Writer, *, changes: bool) -> Json:
    """Returns the writer's entry, with the time of the writer's last apply that changed the object, if any."""
    entry = writer.entry(kind, "Apply", owned)
    if changes:
        return entry
    before: Json = next((each for each in entries if managed_fields.identity(each) == _identity(writer)), {})
    timeless = {name: value for name, value in entry.items() if name != "time"}
    return {**timeless, "time": before["time"]} if before.get("time") else timeless


def check_kind(kind: Kind, config: Json) -> None:
    """Raises 400 for a configuration of another kind."""
    api_version, name = (
        each if isinstance(each, str) else "" for each in (config.get("apiVersion"), config.get("kind"))
    )
    if (api_version, name) != (kind.api_version, kind.kind):
        raise bad_request(f"invalid object type: {_gvk(api_version, name)}")


def check_structure(kind: Kind, config: Json) -> None:
    """Raises 400 for managedFields, and 500 for a configuration that does not match the schema."""
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    errors = structure_errors(structure_of(kind), config)
    if errors:
        metadata = metadata if isinstance(metadata, dict) else {}
        where = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; {_gvk(kind.api_version, kind.kind)}"
        text = errors[0] if len(errors) == 1 else "\n  ".join(["errors:", *errors])
        raise StatusError(500, "", f"failed to create typed patch object ({where}): {text}")


def _gvk(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"{group}/{version}, Kind={kind}"


def _identity(writer: Writer) -> tuple[str, str, str]:
    return writer.name, "Apply", writer.subresource


def _merge(kind: Kind, live: Json, config: Json, entries: Entries, writer: Writer) -> tuple[Json, FieldSet, Comparison]:
    """Returns the merged object, the fields that the writer owns from now on, and how the object changes."""
    structure, ignored = structure_of(kind), managed_fields.reset_fields(kind, writer.subresource)
    content = managed_fields.managed_content(config)
    if not content["metadata"]:
        del content["metadata"]
    owned = recursive_difference(configured_paths(structure, content), ignored)
    own = [each["fieldsV1"] for each in entries if managed_fields.identity(each) == _identity(writer)]
    others = [each for each in entries if managed_fields.identity(each) != _identity(writer)]
    try:
        obj = merge(structure, _without_entries(live), config)
        if own and own[0]:
            pruned = _pruned(structure, obj, own[0], configured_paths(structure, config), others)
            obj = merge(structure, pruned, config)  # restores a map or list that lost its last entry but is configured
        change = managed_fields.compare_managed(
            kind, managed_fields.managed_content(live), managed_fields.managed_content(obj), writer.subresource
        )
    except StructureError as error:
        raise StatusError(500, "", f"failed to merge config: {error}") from error
    return obj, owned, change


def _without_entries(obj: Json) -> Json:
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


def _pruned(structure: Structure, obj: Json, last: FieldSet, configured: FieldSet, others: Entries) -> Json:
    """Returns the object without the fields that were applied last, are not configured now and have no other owner."""
    last = with_named_parents(structure, last)
    present = with_named_parents(structure, configured_paths(structure, obj))
    remaining = with_named_parents(structure, configured_paths(structure, without(structure, obj, last) or {}))
    for entry in others:
        configured = union(configured, entry["fieldsV1"])
    pruned = difference(present, union(remaining, with_named_parents(structure, configured)))
    remaining = with_named_parents(structure, configured_paths(structure, without(structure, obj, pruned) or {}))
    pruned = intersection(difference(present, remaining), last)
    result: Json = without(structure, obj, pruned) or {}
    if "spec" in obj:
        result.setdefault("spec", {})
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], **result}


def _is_upgrade(kind: Kind, live: Json, writer: Writer, conflicts: Conflicts) -> bool:
    """Returns whether kubectl conflicts only with its own client-side apply, from which it migrates without force."""
    if writer.name != _KUBECTL:
        return False
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        last = json.loads(text) if text else None
        if not isinstance(last, dict) or last.get("apiVersion") != kind.api_version:
            return False
        structure = structure_of(kind)
        change = compare(structure, last, live)
        own = difference(configured_paths(structure, last), union(change.written, change.removed))
    except (ValueError, AttributeError, TypeError):
        return False
    return not any(difference(fields, own) for _, fields in conflicts)


def _update_last_applied(metadata: Json, config: Json, writer: Writer) -> None:
    """Updates the annotation of client-side apply if kubectl left one, so that both kinds of apply can alternate."""
    annotations: dict[str, Any] = metadata.get("annotations") or {}
    if writer.name != _KUBECTL or not annotations.get(LAST_APPLIED):
        return
    sent = config.get("metadata") or {}
    if LAST_APPLIED in (sent.get("annotations") or {}):
        others = {name: value for name, value in sent["annotations"].items() if name != LAST_APPLIED}
        sent = {**sent, "annotations": others}
    text = json.dumps({**config, "metadata": sent}, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    updated = {**annotations, LAST_APPLIED: text}
    if sum(len(name.encode()) + len(str(value).encode()) for name, value in updated.items()) > _ANNOTATIONS_BYTES_MAX:
        del updated[LAST_APPLIED]
    metadata["annotations"] = updated


def _conflict_error(conflicts: Conflicts) -> StatusError:
    fields = [
        (_manager_text(entry), path_text(path)) for entry, each in conflicts for path in paths(sorted_elements(each))
    ]
    fields.sort(key=lambda field: field[0])
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": field}
        for manager, field in fields
    ]
    if len(fields) == 1:
        message = f"Apply failed with 1 conflict: conflict with {fields[0][0]}: {fields[0][1]}"
    else:
        lines = []
        for manager in dict.fromkeys(manager for manager, _ in fields):
            lines += [f"conflicts with {manager}:", *(f"- {field}" for other, field in fields if other == manager)]
        message = f"Apply failed with {len(fields)} conflicts: " + "\n".join(lines)
    return StatusError(409, "Conflict", message, {"causes": causes})


def _manager_text(entry: Json) -> str:
    text = json.dumps(entry.get("manager", ""), ensure_ascii=False)
    if entry.get("subresource"):
        text = f'{text} with subresource "{entry["subresource"]}"'
    return f"{text} using {entry['apiVersion']}" if entry["operation"] == "Update" else text
