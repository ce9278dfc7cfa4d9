"""metadata.managedFields: who wrote which fields of an object last, kept up with every write.

Kubernetes documentation, "Server-Side Apply", field management. Ownership is of what the writer sent, with defaults but
before addresses and ports are allocated: those are nobody's. Objects without entries are followed from a first apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeAlias

import msgspec

from kdns.controlplane import metadata
from kdns.controlplane.comparing import Changes, changes
from kdns.controlplane.fieldsets import Fields, difference, in_order, including, is_fields, union
from kdns.controlplane.kinds import Json, Kind
from kdns.controlplane.schema import field_at
from kdns.controlplane.shapes import ShapeError, shape_of

Entries: TypeAlias = list[Json]
"""metadata.managedFields: ManagedFieldsEntry objects in the API's order."""

UPDATERS_MAX = 10
ANCIENT = "ancient-changes"
"""The manager under which the oldest updates are kept together when there are more than UPDATERS_MAX."""

_NOBODYS = frozenset(
    {"name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"}
)
"""Fields of metadata that have no manager."""

_ALSO_IGNORED = {
    ("Pod", "status"): including(("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")),
    ("Deployment", "status"): including(("metadata", "labels")),
}
_EMPTY: dict[str, Json] = {
    "Service": {"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}},
    "Ingress": {"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}},
    "Pod": {"metadata": {}, "spec": {"containers": None}, "status": {}},
}
_POD_TEMPLATE: Json = {"metadata": {}, "spec": {"containers": None}}


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes, through which subresource, and when (meta/v1 Time); a writer without a name owns nothing."""

    name: str
    subresource: str = ""
    time: str = ""

    def entry(self, kind: Kind, operation: str, fields: Fields) -> Json:
        """The writer's entry in managedFields."""
        entry: Json = {"manager": self.name, "operation": operation, "apiVersion": kind.api_version, "time": self.time}
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": in_order(fields)}
        return entry | {"subresource": self.subresource} if self.subresource else entry


def created(kind: Kind, obj: Json, writer: Writer) -> Entries:
    """The entries of a new object."""
    if not writer.name:
        return []
    return _updated(kind, _empty(kind), obj, readable(obj) or [], writer)


def updated(kind: Kind, live: Json, obj: Json, writer: Writer) -> Entries:
    """The entries after an object was written over the live one.

    The writer may change the entries themselves, or throw them away with an empty list or a single empty entry, but
    not through a subresource.
    """
    entries: Entries = live["metadata"].get("managedFields") or []
    sent = obj["metadata"].get("managedFields")
    if sent is not None and not writer.subresource and sent != entries:
        entries = [] if sent in ([], [{}]) else readable(obj) or entries
    return _updated(kind, live, obj, entries, writer) if entries else []


def _updated(kind: Kind, live: Json, obj: Json, entries: Entries, writer: Writer) -> Entries:
    try:
        found = changed(kind, content(live), content(obj), writer.subresource)
    except ShapeError:  # lists whose items nobody can tell apart: validation will say so
        return entries
    kept = released(kind, entries, union(found.written, found.removed))
    if found.written and writer.name:
        kept = _with(kind, kept, writer, found.written)
    return ordered(_capped(kind, kept))


def changed(kind: Kind, live: Json, obj: Json, subresource: str) -> Changes:
    """What a write through the subresource changes; ShapeError when its lists cannot be compared."""
    return changes(shape_of(kind), live, obj).outside(ignored(kind, subresource))


def content(obj: Json) -> Json:
    """The object without what has no manager: its type, name and what the server notes in metadata."""
    rest = {name: value for name, value in obj.items() if name not in {"apiVersion", "kind", "metadata"}}
    return {
        "metadata": {name: value for name, value in (obj.get("metadata") or {}).items() if name not in _NOBODYS},
        **rest,
    }


def readable(obj: Json) -> Entries | None:
    """The entries that an object carries and that say something; None when there are none or one cannot be read."""
    entries = obj["metadata"].get("managedFields") or []
    if not all(map(_is_entry, entries)):
        return None
    return [entry for entry in entries if entry.get("fieldsV1")] or None


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("operation") in {"Apply", "Update"}
        and bool(entry.get("apiVersion"))
        and entry.get("fieldsType") == "FieldsV1"
        and is_fields(entry.get("fieldsV1") or {})
    )


def released(kind: Kind, entries: Entries, lost: Fields) -> Entries:
    """The entries without some paths; those left with nothing, or in a version that is not served, are gone."""
    kept = []
    for entry in entries:
        before: Fields = entry.get("fieldsV1") or {}
        after = difference(before, lost)
        if after and entry["apiVersion"] == kind.api_version:
            kept.append(entry if after == before else {**entry, "fieldsV1": after})
    return kept


def _with(kind: Kind, entries: Entries, writer: Writer, written: Fields) -> Entries:
    entry = writer.entry(kind, "Update", written)
    others = [each for each in entries if identity(each) != identity(entry)]
    for earlier in entries:
        if identity(earlier) == identity(entry):
            entry["fieldsV1"] = in_order(union(earlier["fieldsV1"], written))
    return [*others, entry]


def identity(entry: Json) -> tuple[str, str, str]:
    """What makes two entries the same one; there is one version of each kind, so it does not count."""
    return entry.get("manager", ""), entry["operation"], entry.get("subresource", "")


def _capped(kind: Kind, entries: Entries) -> Entries:
    """At most UPDATERS_MAX entries of updates: the oldest are made one."""
    updates = sorted((each for each in entries if each["operation"] == "Update"), key=_age)
    if len(updates) <= UPDATERS_MAX:
        return entries
    oldest = updates[: len(updates) - UPDATERS_MAX + 1]
    bucket = Writer(ANCIENT, time=oldest[-1].get("time", ""))
    fields: Fields = {}
    for entry in oldest:
        fields = union(fields, entry["fieldsV1"])
    kept = [entry for entry in entries if all(entry is not each for each in oldest)]
    return _with(kind, kept, bucket, fields)


def _age(entry: Json) -> tuple[str, str, str]:
    return entry.get("time", ""), entry.get("manager", ""), entry.get("subresource", "")


def ordered(entries: Entries) -> Entries:
    """Entries as the API sorts them: appliers first, then by time and name."""
    return sorted(entries, key=lambda entry: (entry["operation"], *_age(entry)))


def copied(obj: Json) -> Json:
    """A deep copy of an object to be kept; entries that say the same share their fields, which nobody may change.

    Most objects of a kind have the same fields: without this, managedFields would be the larger part of their memory.
    """
    marks = obj["metadata"]
    if "managedFields" not in marks:
        return metadata.copied(obj)
    others = {name: value for name, value in marks.items() if name != "managedFields"}
    copy = metadata.copied({**obj, "metadata": others})
    copy["metadata"]["managedFields"] = [
        {**entry, "fieldsV1": _shared(msgspec.json.encode(entry["fieldsV1"]))} for entry in marks["managedFields"]
    ]
    return copy


@lru_cache(maxsize=4096)
def _shared(fields: bytes) -> Fields:
    found: Fields = msgspec.json.decode(fields)
    return found


def same_but_for_times(one: Entries, other: Entries) -> bool:
    """Whether two lists of entries differ in nothing but when something was written."""
    return [{**entry, "time": ""} for entry in one] == [{**entry, "time": ""} for entry in other]


@cache
def ignored(kind: Kind, subresource: str) -> Fields:
    """What a write through a subresource, or "" for the object itself, does not change."""
    extra: Fields = _ALSO_IGNORED.get((kind.kind, subresource), {})
    match subresource:
        case "status":
            return union(including(("spec",)), extra)
        case _:
            return including(("status",)) if "status" in kind.subresources else {}


@cache
def _empty(kind: Kind) -> Json:
    """What is there before a create: the parts that every object of a kind has, which its creator does not own."""
    known = _EMPTY.get(kind.kind)
    if known is not None:
        return known
    empty: Json = {"metadata": {}, **{part: {} for part in ("spec", "status") if _has(kind, part)}}
    for part in ("strategy", "updateStrategy"):
        if _has(kind, f"spec.{part}"):
            empty["spec"][part] = {}
    if _has(kind, "spec.template.spec.containers"):
        empty["spec"]["template"] = _POD_TEMPLATE
    return empty


def _has(kind: Kind, path: str) -> bool:
    try:
        field_at(kind, path)
    except KeyError:
        return False
    return True
