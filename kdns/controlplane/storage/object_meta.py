"""The type and metadata of an object, which the API treats alike for every kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from kdns.controlplane.meta import gotext
from kdns.controlplane.meta.errors import StatusError, bad_request, conflict, internal, invalid
from kdns.controlplane.meta.field_errors import invalid_value
from kdns.controlplane.meta.kinds import Json, Kind
from kdns.controlplane.storage.store import MODIFIED, parsed_revision

_GENERATED_BASE_MAX = 58
_OURS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_CLIENT_MAY_NOT_SET = (*_OURS, "selfLink")


def is_terminating(obj: Json) -> bool:
    """Whether the object is being deleted: metadata.deletionTimestamp is set."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def copied(obj: Json) -> Json:
    """A deep copy of a JSON object."""
    copy: Json = msgspec.json.decode(msgspec.json.encode(obj))
    return copy


def timestamp(now_s: float) -> str:
    """Seconds since the epoch as meta/v1 Time: RFC 3339, UTC, whole seconds."""
    return _timestamp(math.floor(now_s))


@lru_cache(maxsize=16)
def _timestamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def typed(kind: Kind, obj: Json) -> Json:
    """The object with apiVersion and kind first; 400 if it has another type."""
    version, name = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind
    if version != kind.api_version:
        found, wanted = version, kind.api_version
        raise bad_request(f"the API version in the data ({found}) does not match the expected API version ({wanted})")
    if name != kind.kind:
        raise bad_request(
            f'{name} in version "{version}" cannot be handled as a {kind.kind}: the request is for {kind.plural}'
        )
    metadata = obj.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise bad_request(gotext.misfit(metadata, f"struct field {kind.kind}.metadata of type v1.ObjectMeta"))
    for field in ("labels", "annotations"):
        values = metadata.get(field) or {}
        if not (isinstance(values, dict) and all(isinstance(value, str) for value in values.values())):
            raise bad_request(f"metadata.{field}: wanted an object of texts; numbers and booleans need quotes")
    rest = {field: value for field, value in obj.items() if field not in {"apiVersion", "kind", "metadata"}}
    return {"kind": name, "apiVersion": version, "metadata": metadata, **rest}


def place(kind: Kind, namespace: str, obj: Json) -> None:
    """Set the request's namespace; 400 if the object names another."""
    metadata = obj["metadata"]
    if (metadata.get("namespace") or namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if kind.namespaced:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)


def name_new(obj: Json, suffix: str) -> str:
    """The object's name. Without one: generateName and `suffix`; without both: "", which is invalid."""
    metadata = obj["metadata"]
    name, base = metadata.get("name") or "", metadata.get("generateName") or ""
    if not name and base:
        name = metadata["name"] = f"{base[:_GENERATED_BASE_MAX]}{suffix}"
    return str(name)


def begin(obj: Json, uid: str, now_s: float, *, generation: bool) -> None:
    """Set the metadata that the server owns."""
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
    for field in (*_CLIENT_MAY_NOT_SET, "resourceVersion"):
        metadata.pop(field, None)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = timestamp(now_s)
    if generation:
        metadata["generation"] = 1


def carry(old: Json, new: Json) -> None:
    """Carry over the metadata that the server owns."""
    for field in _CLIENT_MAY_NOT_SET:
        new["metadata"].pop(field, None)
        if field in old["metadata"]:
            new["metadata"][field] = old["metadata"][field]


def match(kind: Kind, name: str, obj: Json, old: Json) -> None:
    """Check name (400), resourceVersion (409) and uid (422) against the stored object.

    Controllers that patch a Pod take the 422 as: another Pod has the name now.
    """
    metadata, present = obj["metadata"], old["metadata"]
    if (claimed := metadata.get("name") or name) != name:
        raise bad_request(f"the name of the object ({claimed}) does not match the name on the URL ({name})")
    metadata["name"] = name
    revision = metadata.get("resourceVersion") or ""
    try:
        stale = revision and parsed_revision(revision) != parsed_revision(present["resourceVersion"])
    except (TypeError, ValueError) as error:
        raise internal(f"metadata.resourceVersion: {error}") from error
    if stale:
        raise conflict(kind, name, MODIFIED)
    if (uid := metadata.get("uid") or present["uid"]) != present["uid"]:
        raise invalid(kind, name, [invalid_value("metadata.uid", uid, "field is immutable")])


def claims(kind: Kind, name: str, sent: Json, old: Json, *, unconditional: bool) -> None:
    """Check a PUT: the same uid (409), and a resourceVersion unless `unconditional` (422)."""
    precondition(kind, name, "UID", sent.get("uid"), old["metadata"]["uid"])
    if not unconditional and not sent.get("resourceVersion"):
        raise invalid(kind, name, [invalid_value("metadata.resourceVersion", 0, "must be specified for an update")])


def precondition(kind: Kind, name: str, what: str, wanted: str | None, found: str) -> None:
    """Raises 409 if a precondition expects another uid or resourceVersion."""
    if wanted and wanted != found:
        field = "UID" if what == "UID" else "ResourceVersion"
        raise conflict(
            kind, name, f"Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {found}"
        )


def content(obj: Json) -> Json:
    """The object without metadata and status. metadata.generation counts its changes."""
    return {field: value for field, value in obj.items() if field not in {"metadata", "status"}}


def bump(old: Json, new: Json, counted: Callable[[Json], Json] | None) -> None:
    """Increment metadata.generation if the part of the object that is `counted` changed."""
    if counted and counted(old) != counted(new):
        new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1


def with_metadata_of(new: Json, old: Json, fields: Iterable[str]) -> Json:
    """The object with these fields of the old one's metadata."""
    kept = {name: value for name, value in new["metadata"].items() if name not in fields}
    return {**new, "metadata": kept | {name: old["metadata"][name] for name in fields if name in old["metadata"]}}
