"""metadata.managedFields: which manager last wrote which fields of an object.

Kubernetes documentation, "Server-Side Apply", field management. Managers are tracked from the first server-side apply
on: older fields belong to `before-first-apply`, and an update takes fields over from their managers.

Differs: objects that were never applied have no managers, which would cost a third of each write; entries of old
updates are not combined.
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
    """At the first apply of an object, one manager owns everything but the status."""
    entries: Entries = live["metadata"].get("managedFields") or []
    fields = {} if entries else configured_paths(object_of(kind), managed_content(kind, live))
    return [Writer(_BEFORE_FIRST_APPLY, time=time).entry(kind, "Update", fields)] if fields else entries


def entries_of_changed(kind: Kind, live: Json, obj: Json, writer: Writer) -> Entries:
    """The entries after an update of the live object to `obj`.

    The writer may change the entries themselves, or remove all with a single empty one, but not through a subresource.
    """
    entries: Entries = live["metadata"].get("managedFields") or []
    sent = obj["metadata"].get("managedFields")
    if entries and sent and sent != entries and not writer.subresource:
        entries = [] if sent == [{}] else _valid_entries(sent) or entries
    if not entries:
        return []
    try:
        contents = (managed_content(kind, state, writer.subresource) for state in (live, obj))
        written, removed = compare(object_of(kind), *contents)
    except StructureError:  # list items cannot be identified: validation refuses the object
        return entries
    result = entries_without(entries, union(written, removed))
    if written and writer.name:
        entry = writer.entry(kind, "Update", written)
        for earlier in result:
            if identity(earlier) == identity(entry):
                entry["fieldsV1"] = sorted_elements(union(earlier["fieldsV1"], written))
        result = [*(earlier for earlier in result if identity(earlier) != identity(entry)), entry]
    return sorted_entries(result)


def _valid_entries(sent: Entries) -> Entries:
    """The entries that own fields; empty if any entry is malformed."""
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
    """The fields that a write through the (sub)resource may change, without type, name and server-owned metadata."""
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
    """Removes the paths of a set; entries without further paths are dropped."""
    remaining = ((entry, difference(entry.get("fieldsV1") or {}, fields)) for entry in entries)
    return [{**entry, "fieldsV1": after} for entry, after in remaining if after]


def identity(entry: Json) -> tuple[str, str, str]:
    """The API version does not count, since each kind has one."""
    return entry.get("manager", ""), entry["operation"], entry.get("subresource", "")


def sorted_entries(entries: Entries) -> Entries:
    """kube-apiserver's order: appliers first, then by time and name."""
    return sorted(entries, key=lambda entry: (entry["operation"], entry.get("time", ""), *identity(entry)))


def same_but_for_times(one: Entries, other: Entries) -> bool:
    return [{**entry, "time": ""} for entry in one] == [{**entry, "time": ""} for entry in other]
