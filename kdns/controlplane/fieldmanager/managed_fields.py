"""metadata.managedFields: which manager wrote which fields of an object last, updated with every write.

Kubernetes documentation, "Server-Side Apply", field management. A manager owns the fields that it sent, with defaults
but without allocated addresses and ports, which nobody owns. An object without entries gets them at its first apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from typing import Any, TypeAlias

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.fieldmanager.compare import Comparison, compare
from kdns.controlplane.fieldmanager.field_sets import (
    FieldSet,
    difference,
    field_set,
    is_field_set,
    sorted_elements,
    union,
)
from kdns.controlplane.fieldmanager.structure import StructureError, structure_of
from kdns.controlplane.schema.serialization import zero

Entries: TypeAlias = list[Json]
"""metadata.managedFields: ManagedFieldsEntry objects in the API's order."""

UPDATERS_MAX = 10
ANCIENT = "ancient-changes"
"""The manager whose entry combines the oldest updates when there are more than UPDATERS_MAX."""

_UNMANAGED = frozenset(
    {"name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"}
)
"""FieldSet of metadata that have no manager."""

_RESET_BESIDE_SPEC = {
    ("Pod", "status"): field_set(("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")),
    ("Deployment", "status"): field_set(("metadata", "labels")),
}


@dataclass(frozen=True, slots=True)
class Writer:
    """A field manager, its subresource, and the time of the write (meta/v1 Time). Without a name it owns nothing."""

    name: str
    subresource: str = ""
    time: str = ""

    def entry(self, kind: Kind, operation: str, fields: FieldSet) -> Json:
        """Returns the writer's entry in managedFields."""
        entry: Json = {"manager": self.name, "operation": operation, "apiVersion": kind.api_version, "time": self.time}
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": sorted_elements(fields)}
        return entry | {"subresource": self.subresource} if self.subresource else entry


def entries_of_new(kind: Kind, obj: Json, writer: Writer) -> Entries:
    if not writer.name:
        return []
    return _after_write(kind, zero(kind), obj, valid_entries(obj) or [], writer)


def entries_of_changed(kind: Kind, live: Json, obj: Json, writer: Writer) -> Entries:
    """Returns the entries after an update of the live object to `obj`.

    The writer may change the entries themselves, or remove all with a single empty entry, but not through a
    subresource.
    """
    entries: Entries = live["metadata"].get("managedFields") or []
    sent = obj["metadata"].get("managedFields")
    if sent is not None and not writer.subresource and sent != entries:
        entries = [] if sent == [{}] else valid_entries(obj) or entries
    return _after_write(kind, live, obj, entries, writer) if entries else []


def _after_write(kind: Kind, live: Json, obj: Json, entries: Entries, writer: Writer) -> Entries:
    try:
        change = compare_managed(kind, managed_content(live), managed_content(obj), writer.subresource)
    except StructureError:  # list items cannot be identified: validation refuses the object
        return entries
    result = entries_without(kind, entries, union(change.written, change.removed))
    if change.written and writer.name:
        result = _with_update(kind, result, writer, change.written)
    return sorted_entries(_capped(kind, result))


def compare_managed(kind: Kind, live: Json, obj: Json, subresource: str) -> Comparison:
    """Returns how a write through the subresource changes an object. Raises StructureError for incomparable lists."""
    return compare(structure_of(kind), live, obj).excluding(reset_fields(kind, subresource))


def managed_content(obj: Json) -> Json:
    """Returns the object without fields that have no manager: type, name and the metadata that the server sets."""
    rest = {name: value for name, value in obj.items() if name not in {"apiVersion", "kind", "metadata"}}
    return {
        "metadata": {name: value for name, value in (obj.get("metadata") or {}).items() if name not in _UNMANAGED},
        **rest,
    }


def valid_entries(obj: Json) -> Entries | None:
    """Returns the entries of an object that own fields; None if they are missing or one is malformed."""
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
        and is_field_set(entry.get("fieldsV1") or {})
    )


def entries_without(kind: Kind, entries: Entries, fields: FieldSet) -> Entries:
    """Returns the entries without the paths of a set.

    Entries without paths, or of a version that is not served, are dropped.
    """
    result = []
    for entry in entries:
        before: FieldSet = entry.get("fieldsV1") or {}
        after = difference(before, fields)
        if after and entry["apiVersion"] == kind.api_version:
            result.append(entry if after == before else {**entry, "fieldsV1": after})
    return result


def _with_update(kind: Kind, entries: Entries, writer: Writer, written: FieldSet) -> Entries:
    entry = writer.entry(kind, "Update", written)
    others = [each for each in entries if identity(each) != identity(entry)]
    for earlier in entries:
        if identity(earlier) == identity(entry):
            entry["fieldsV1"] = sorted_elements(union(earlier["fieldsV1"], written))
    return [*others, entry]


def identity(entry: Json) -> tuple[str, str, str]:
    """Returns manager, operation and subresource. The API version is not part of it: each kind has one version."""
    return entry.get("manager", ""), entry["operation"], entry.get("subresource", "")


def _capped(kind: Kind, entries: Entries) -> Entries:
    """Returns the entries, the oldest updates combined into one if there are more than UPDATERS_MAX."""
    updates = sorted((each for each in entries if each["operation"] == "Update"), key=_age)
    if len(updates) <= UPDATERS_MAX:
        return entries
    oldest = updates[: len(updates) - UPDATERS_MAX + 1]
    bucket = Writer(ANCIENT, time=oldest[-1].get("time", ""))
    combined: list[FieldSet] = [entry["fieldsV1"] for entry in oldest]
    while len(combined) > 1:  # in pairs: one after the other takes the square of their number
        combined = [union(one, other or {}) for one, other in zip_longest(combined[::2], combined[1::2])]
    left = set(map(id, oldest))
    return _with_update(kind, [entry for entry in entries if id(entry) not in left], bucket, combined[0])


def _age(entry: Json) -> tuple[str, str, str]:
    return entry.get("time", ""), entry.get("manager", ""), entry.get("subresource", "")


def sorted_entries(entries: Entries) -> Entries:
    """Returns entries in the order of kube-apiserver: appliers first, then by time and name."""
    return sorted(entries, key=lambda entry: (entry["operation"], *_age(entry)))


def same_but_for_times(one: Entries, other: Entries) -> bool:
    """Returns whether two lists of entries are equal apart from their times."""
    return [{**entry, "time": ""} for entry in one] == [{**entry, "time": ""} for entry in other]


@cache
def reset_fields(kind: Kind, subresource: str) -> FieldSet:
    """Returns the fields that a write through a subresource ("" for none) resets to their stored values."""
    if subresource == "status":
        return union(field_set(("spec",)), _RESET_BESIDE_SPEC.get((kind.kind, subresource), {}))
    return field_set(("status",)) if "status" in kind.subresources else {}
