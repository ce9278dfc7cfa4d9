"""Server-side apply: the object that results from a configuration, and conflicts with other managers.

Kubernetes documentation, "Server-Side Apply". A field that a manager applied before and does not apply now is removed
unless another manager owns it too. A value that another manager owns is changed only by force.
"""

from __future__ import annotations

import json
from functools import reduce
from typing import Any, TypeAlias

from kdns.controlplane.apimachinery.annotations import KUBECTL_LAST_APPLIED
from kdns.controlplane.apimachinery.errors import StatusError, bad_request
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.fieldmanager.field_sets import (
    FieldSet,
    at_or_below,
    difference,
    intersection,
    path_text,
    paths,
    sorted_elements,
    union,
)
from kdns.controlplane.fieldmanager.managed_fields import (
    Entries,
    Writer,
    entries_before_apply,
    entries_without,
    identity,
    managed_content,
    sorted_entries,
)
from kdns.controlplane.fieldmanager.ownership import (
    StructureError,
    all_paths,
    check_items,
    compare,
    configured_paths,
    merge,
    without,
)
from kdns.controlplane.schema.check import UNKNOWN, mistakes
from kdns.controlplane.schema.schema import object_of

_KUBECTL = "kubectl"
_ANNOTATIONS_BYTES_MAX = 256 * 1024

Conflicts: TypeAlias = list[tuple[Json, FieldSet]]
"""Entries of other managers, each with the paths of theirs that an apply changes."""


def apply(kind: Kind, live: Json | None, config: Json, writer: Writer, *, force: bool) -> Json:
    """The live object with the configuration applied, and its managedFields; `live` is None for a new object.

    Call `check_kind` first. Raises 500 for a configuration that does not match the schema, 409 for conflicts.
    """
    check_structure(kind, config)
    field, before = object_of(kind), live or {}
    entries = entries_before_apply(kind, live, writer.time) if live else []
    mine = (writer.name, "Apply", writer.subresource)
    others = [entry for entry in entries if identity(entry) != mine]
    own = next((entry for entry in entries if identity(entry) == mine), {})
    last: FieldSet = own.get("fieldsV1") or {}
    try:
        check_items(field, config)
        taken, others = _client_side_applied(kind, before, writer, others)
        last = union(last, taken)
        needed = reduce(union, (entry["fieldsV1"] for entry in others), configured_paths(field, config))
        obj = without(field, merge(field, _without_entries(before), config), difference(last, needed), needed)
        contents = (managed_content(kind, state, writer.subresource) for state in (before, obj))
        written, removed = compare(field, *contents)
        owned = configured_paths(field, managed_content(kind, config, writer.subresource))
    except StructureError as error:
        raise StatusError(500, "", f"failed to merge config: {error}") from error
    conflicts = [(entry, fields) for entry in others if (fields := intersection(entry["fieldsV1"], written))]
    if conflicts and not force:
        raise _conflict_error(conflicts)
    entries = entries_without(others, union(written, removed))
    if owned:
        entry = writer.entry(kind, "Apply", owned)
        if not (written or removed):  # the entry has the time of the last apply that changed the object
            del entry["time"]
            entry |= {"time": own["time"]} if "time" in own else {}
        entries.append(entry)
    metadata = {**(obj.get("metadata") or {}), "managedFields": sorted_entries(entries)}
    _update_last_applied(metadata, config, writer)
    return {**obj, "metadata": metadata}


def _client_side_applied(kind: Kind, live: Json, writer: Writer, others: Entries) -> tuple[FieldSet, Entries]:
    """Fields that `kubectl apply` without --server-side set and that are unchanged since, and other managers' entries
    without these fields.

    kubectl's server-side apply takes them over without a conflict, and removes those that it does not configure. List
    items count with everything that was added to them, such as defaults.
    """
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(KUBECTL_LAST_APPLIED)
    if writer.name != _KUBECTL or not text:
        return {}, others
    try:
        last = json.loads(text)
        if last["apiVersion"] != kind.api_version:
            return {}, others
        if not last["metadata"].get("annotations"):
            last["metadata"].pop("annotations", None)  # kubectl writes {}, but configures none
        field, content = object_of(kind), managed_content(kind, last)
        written, removed = compare(field, content, managed_content(kind, live))
        unchanged = difference(configured_paths(field, content), union(written, removed))
        changed = intersection(written, all_paths(field, content))
    except (ValueError, KeyError, AttributeError, TypeError):  # clients may write any text
        return {}, others
    taken, remaining = unchanged, list[Json]()
    for entry in others:
        mine = difference(at_or_below(entry["fieldsV1"], unchanged), changed) if entry["operation"] == "Update" else {}
        taken = union(taken, mine)
        remaining += entries_without([entry], mine)
    return taken, remaining


def _without_entries(obj: Json) -> Json:
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


def check_kind(kind: Kind, config: Json) -> None:
    api_version, name = (text if isinstance(text, str) else "" for text in map(config.get, ("apiVersion", "kind")))
    if (api_version, name) != (kind.api_version, kind.kind):
        raise bad_request(f"invalid object type: {_gvk(api_version, name)}")


def check_structure(kind: Kind, config: Json) -> None:
    """Raises 400 for managedFields, and 500 for a configuration that does not match the schema."""
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    wrong = [
        f".{path}: {'field not declared in schema' if why == UNKNOWN else why}" for path, why in mistakes(kind, config)
    ]
    if wrong:
        metadata = metadata if isinstance(metadata, dict) else {}
        where = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; {_gvk(kind.api_version, kind.kind)}"
        text = wrong[0] if len(wrong) == 1 else "\n  ".join(["errors:", *wrong])
        raise StatusError(500, "", f"failed to create typed patch object ({where}): {text}")


def _gvk(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"{group}/{version}, Kind={kind}"


def _update_last_applied(metadata: Json, config: Json, writer: Writer) -> None:
    """Updates the annotation of client-side apply if kubectl wrote one, so that both kinds of apply can alternate."""
    annotations: dict[str, Any] = metadata.get("annotations") or {}
    if writer.name != _KUBECTL or not annotations.get(KUBECTL_LAST_APPLIED):
        return
    sent = config.get("metadata") or {}
    if KUBECTL_LAST_APPLIED in (sent.get("annotations") or {}):
        others = {name: value for name, value in sent["annotations"].items() if name != KUBECTL_LAST_APPLIED}
        sent = {**sent, "annotations": others}
    text = json.dumps({**config, "metadata": sent}, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    updated = {**annotations, KUBECTL_LAST_APPLIED: text}
    if sum(len(name.encode()) + len(str(value).encode()) for name, value in updated.items()) > _ANNOTATIONS_BYTES_MAX:
        del updated[KUBECTL_LAST_APPLIED]
    metadata["annotations"] = updated


def _conflict_error(conflicts: Conflicts) -> StatusError:
    fields = [
        (_manager_text(entry), path_text(path)) for entry, owned in conflicts for path in paths(sorted_elements(owned))
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
