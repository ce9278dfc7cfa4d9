"""Server-side apply: what a configuration makes of an object, and who stands in its way.

Kubernetes documentation, "Server-Side Apply". What a manager applied before and does not apply now goes, unless someone
else manages it too; a value that someone else manages may be changed by force only.
"""

from __future__ import annotations

import json
from typing import Any

from kdns.controlplane import managed
from kdns.controlplane.comparing import Changes, applied_paths, changes
from kdns.controlplane.fieldsets import Fields, difference, in_order, intersection, outside, path_text, paths, union
from kdns.controlplane.kinds import Json, Kind
from kdns.controlplane.managed import Entries, Writer
from kdns.controlplane.merging import merged, mistakes, with_parents, without
from kdns.controlplane.shapes import Shape, ShapeError, shape_of
from kdns.controlplane.status import StatusError, bad_request

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which client-side apply keeps its configuration."""

_KUBECTL = "kubectl"
_BEFORE = "before-first-apply"
_ANNOTATIONS_BYTES_MAX = 256 * 1024


def applied(kind: Kind, live: Json | None, config: Json, writer: Writer, *, force: bool) -> Json:
    """The object after a configuration was applied, with its managedFields; `live` is None where there is none yet.

    400 for a configuration of another kind, 500 for one that does not fit the schema, 409 for conflicts.
    """
    _check(kind, config)
    entries: Entries = []
    if live is not None:
        known = live["metadata"].get("managedFields")
        entries = known or managed.created(kind, live, Writer(_BEFORE, time=writer.time))
    obj, claims, found = _applied(kind, live or {}, config, entries, writer)
    others = [entry for entry in entries if managed.identity(entry) != _own(writer)]
    hit = ((entry, intersection(entry["fieldsV1"], found.written)) for entry in others)
    taken = [(entry, fields) for entry, fields in hit if fields]
    if taken and not force and not _is_upgrade(kind, live or {}, writer, taken):
        raise _conflict(taken)
    kept = managed.released(kind, others, union(found.written, found.removed))
    own = [writer.entry(kind, "Apply", claims)] if claims else []
    metadata = {**(obj.get("metadata") or {}), "managedFields": managed.ordered([*kept, *own])}
    _note_configuration(metadata, config, writer)
    return {**obj, "metadata": metadata}


def _check(kind: Kind, config: Json) -> None:
    found = config.get("apiVersion") or "", config.get("kind") or ""
    if found != (kind.api_version, kind.kind):
        raise bad_request(f"invalid object type: {_gvk(*found)}")
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    wrong = mistakes(shape_of(kind), config)
    if wrong:
        metadata = metadata if isinstance(metadata, dict) else {}
        where = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; {_gvk(*found)}"
        listed = wrong[0] if len(wrong) == 1 else "\n  ".join(["errors:", *wrong])
        raise StatusError(500, "", f"failed to create typed patch object ({where}): {listed}")


def _gvk(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"{group}/{version}, Kind={kind}"


def _own(writer: Writer) -> tuple[str, str, str]:
    return writer.name, "Apply", writer.subresource


def _applied(kind: Kind, live: Json, config: Json, entries: Entries, writer: Writer) -> tuple[Json, Fields, Changes]:
    """The object, what the writer manages of it from now on, and what it changes."""
    shape, ignored = shape_of(kind), managed.ignored(kind, writer.subresource)
    speaks_of = managed.content(config)
    if not speaks_of["metadata"]:
        del speaks_of["metadata"]
    claims = outside(applied_paths(shape, speaks_of), ignored)
    last: Fields = next((each["fieldsV1"] for each in entries if managed.identity(each) == _own(writer)), {})
    others = [each for each in entries if managed.identity(each) != _own(writer)]
    try:
        obj = merged(shape, _without_entries(live), config)
        if last:
            pruned = _pruned(shape, obj, last, applied_paths(shape, config), others)
            obj = merged(shape, pruned, config)  # a map or list that lost its last entry, but is applied empty, stays
        found = managed.changed(kind, managed.content(live), managed.content(obj), writer.subresource)
    except ShapeError as error:
        raise StatusError(500, "", f"failed to merge config: {error}") from error
    return obj, claims, found


def _without_entries(obj: Json) -> Json:
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


def _pruned(shape: Shape, obj: Json, last: Fields, wanted: Fields, others: Entries) -> Json:
    """The object without what was applied last and is not wanted now, as far as nobody else manages it."""
    last = with_parents(shape, last)
    everything = with_parents(shape, applied_paths(shape, obj))
    left = with_parents(shape, applied_paths(shape, without(shape, obj, last) or {}))
    for entry in others:
        wanted = union(wanted, entry["fieldsV1"])
    doomed = difference(everything, union(left, with_parents(shape, wanted)))
    left = with_parents(shape, applied_paths(shape, without(shape, obj, doomed) or {}))
    doomed = intersection(difference(everything, left), last)
    kept: Json = without(shape, obj, doomed) or {}
    if "spec" in obj:
        kept.setdefault("spec", {})
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], **kept}


def _is_upgrade(kind: Kind, live: Json, writer: Writer, taken: list[tuple[Json, Fields]]) -> bool:
    """Whether kubectl takes only what its own client-side apply set: that is no conflict."""
    if writer.name != _KUBECTL:
        return False
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        last = json.loads(text) if text else None
        if not isinstance(last, dict) or last.get("apiVersion") != kind.api_version:
            return False
        shape = shape_of(kind)
        differing = changes(shape, last, live)
        own = difference(applied_paths(shape, last), union(differing.written, differing.removed))
    except (ValueError, AttributeError, TypeError):
        return False
    return not any(difference(fields, own) for _, fields in taken)


def _note_configuration(metadata: Json, config: Json, writer: Writer) -> None:
    """Keep the annotation of client-side apply up to date where kubectl left one, so that both ways work in turn."""
    annotations: dict[str, Any] = metadata.get("annotations") or {}
    if writer.name != _KUBECTL or not annotations.get(LAST_APPLIED):
        return
    sent = config.get("metadata") or {}
    if LAST_APPLIED in (sent.get("annotations") or {}):
        others = {name: value for name, value in sent["annotations"].items() if name != LAST_APPLIED}
        sent = {**sent, "annotations": others}
    text = json.dumps({**config, "metadata": sent}, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    noted = {**annotations, LAST_APPLIED: text}
    if sum(len(name.encode()) + len(str(value).encode()) for name, value in noted.items()) > _ANNOTATIONS_BYTES_MAX:
        del noted[LAST_APPLIED]
    metadata["annotations"] = noted


def _conflict(taken: list[tuple[Json, Fields]]) -> StatusError:
    found = [(_manager_text(entry), path_text(path)) for entry, fields in taken for path in paths(in_order(fields))]
    found.sort(key=lambda each: each[0])
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field} for who, field in found
    ]
    if len(found) == 1:
        message = f"Apply failed with 1 conflict: conflict with {found[0][0]}: {found[0][1]}"
    else:
        lines = []
        for who in dict.fromkeys(who for who, _ in found):
            lines += [f"conflicts with {who}:", *(f"- {field}" for each, field in found if each == who)]
        message = f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
    return StatusError(409, "Conflict", message, {"causes": causes})


def _manager_text(entry: Json) -> str:
    text = json.dumps(entry.get("manager", ""), ensure_ascii=False)
    if entry.get("subresource"):
        text = f'{text} with subresource "{entry["subresource"]}"'
    return f"{text} using {entry['apiVersion']}" if entry["operation"] == "Update" else text
