"""metadata.managedFields: which manager wrote which fields of an object last.

Kubernetes documentation, "Server-Side Apply", field management. An object has managers from its first server-side
apply on: what it had before belongs to `before-first-apply`, and an update takes fields over from their managers.
Differs: objects that were never applied have no managers, which would take a third of the work of each write; entries
of old updates are not combined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.fieldmanager.field_sets import FieldSet, difference, is_field_set, sorted_elements, union
from kdns.controlplane.fieldmanager.ownership import StructureError, compare, configured_paths
from kdns.controlplane.schema.schema import object_of

Entries: TypeAlias = list[Json]
"""metadata.managedFields: ManagedFieldsEntry objects in the API's order."""

_BEFORE_FIRST_APPLY: Final = "before-first-apply"
_UNMANAGED: Final = frozenset(
    {"name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"}
)
"""Fields of metadata that have no manager."""


@dataclass(frozen=True, slots=True)
class Writer:
    """A field manager, its subresource, and the time of the write (meta/v1 Time). Without a name it owns nothing."""

    name: str
    subresource: str = ""
    time: str = ""

    def entry(self, kind: Kind, operation: str, fields: FieldSet) -> Json:
        entry: Json = {"manager": self.name, "operation": operation, "apiVersion": kind.api_version, "time": self.time}
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": sorted_elements(fields)}
        return entry | {"subresource": self.subresource} if self.subresource else entry


def entries_before_apply(kind: Kind, live: Json, time: str) -> Entries:
    """Returns the entries of an object; at its first apply one manager owns all of it but the status."""
    entries: Entries = live["metadata"].get("managedFields") or []
    fields = {} if entries else configured_paths(object_of(kind), managed_content(kind, live))
    return [Writer(_BEFORE_FIRST_APPLY, time=time).entry(kind, "Update", fields)] if fields else entries


def entries_of_changed(kind: Kind, live: Json, obj: Json, writer: Writer) -> Entries:
    """Returns the entries after an update of the live object to `obj`.

    The writer may change the entries themselves, or remove all with a single empty one, but not through a subresource.
    """
    entries: Entries = live["metadata"].get("managedFields") or []
    sent = obj["metadata"].get("managedFields")
    if entries and sent and sent != entries and not writer.subresource:
        entries = [] if sent == [{}] else _valid_entries(sent) or entries
    if not entries:
        return []
    try:
        written, removed = compare(
            object_of(kind), *(managed_content(kind, each, writer.subresource) for each in (live, obj))
        )
    except StructureError:  # list items cannot be identified: validation refuses the object
        return entries
    result = entries_without(entries, union(written, removed))
    if written and writer.name:
        entry = writer.entry(kind, "Update", written)
        for earlier in result:
            if identity(earlier) == identity(entry):
                entry["fieldsV1"] = sorted_elements(union(earlier["fieldsV1"], written))
        result = [*(each for each in result if identity(each) != identity(entry)), entry]
    return sorted_entries(result)


def _valid_entries(sent: Entries) -> Entries:
    """Returns the entries that own fields; none if one is malformed."""
    is_valid = all(
        isinstance(entry, dict)
        and entry.get("operation") in {"Apply", "Update"}
        and entry.get("apiVersion")
        and entry.get("fieldsType") == "FieldsV1"
        and is_field_set(entry.get("fieldsV1") or {})
        for entry in sent
    )
    return [entry for entry in sent if entry.get("fieldsV1")] if is_valid else []


def managed_content(kind: Kind, obj: Json, subresource: str = "") -> Json:
    """Returns the fields that a write through the (sub)resource may change, without type, name and what is the
    server's.
    """
    ignored = {"apiVersion", "kind", "metadata"}
    if subresource == "status":
        ignored.add("spec")
    elif "status" in kind.subresources:
        ignored.add("status")
    metadata: Any = obj.get("metadata") or {}
    if isinstance(metadata, dict):
        metadata = {name: value for name, value in metadata.items() if name not in _UNMANAGED}
    content = {name: value for name, value in obj.items() if name not in ignored}
    return {"metadata": metadata, **content} if metadata else content


def entries_without(entries: Entries, fields: FieldSet) -> Entries:
    """Returns the entries without the paths of a set; those without further paths are dropped."""
    remaining = ((entry, difference(entry.get("fieldsV1") or {}, fields)) for entry in entries)
    return [{**entry, "fieldsV1": after} for entry, after in remaining if after]


def identity(entry: Json) -> tuple[str, str, str]:
    """Returns manager, operation and subresource. The API version is not part of it: each kind has one version."""
    return entry.get("manager", ""), entry["operation"], entry.get("subresource", "")


def sorted_entries(entries: Entries) -> Entries:
    """Returns entries in the order of kube-apiserver: appliers first, then by time and name."""
    return sorted(entries, key=lambda each: (each["operation"], each.get("time", ""), *identity(each)))


def same_but_for_times(one: Entries, other: Entries) -> bool:
    return [{**entry, "time": ""} for entry in one] == [{**entry, "time": ""} for entry in other]
