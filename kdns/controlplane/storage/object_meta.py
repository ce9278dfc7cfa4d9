"""The type and metadata of an object, which the API treats alike for every kind."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import StatusError, bad_request, conflict, invalid
from kdns.controlplane.apimachinery.field_errors import expected, invalid_value
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.schema.check import another_type
from kdns.controlplane.storage.store import MODIFIED, parsed_revision

_GENERATED_BASE_MAX = 58
_OURS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_CLIENT_MAY_NOT_SET = (*_OURS, "selfLink")


def is_terminating(obj: Json) -> bool:
    """Returns whether the object is being deleted: metadata.deletionTimestamp is set."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def key_of(obj: Json) -> Key:
    """Returns namespace and name; "" for absent ones."""
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata.get("name") or ""


def copied(obj: Json) -> Json:
    copy: Json = msgspec.json.decode(msgspec.json.encode(obj))
    return copy


def timestamp(now_s: float) -> str:
    """Returns seconds since the epoch as meta/v1 Time: RFC 3339, UTC, whole seconds."""
    return _timestamp(math.floor(now_s))


@lru_cache(maxsize=16)
def _timestamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def typed(kind: Kind, obj: Json) -> Json:
    """Returns the object with apiVersion and kind first. Raises 400 if it has another type."""
    if why := another_type(kind, obj):
        raise bad_request(why)
    metadata = obj.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise bad_request(f"metadata: {expected('an object', metadata)}")
    for field in ("labels", "annotations"):
        values = metadata.get(field) or {}
        if not (isinstance(values, dict) and all(isinstance(value, str) for value in values.values())):
            raise bad_request(f"metadata.{field}: must be a map of strings; quote numbers and booleans")
    rest = {field: value for field, value in obj.items() if field not in {"apiVersion", "kind", "metadata"}}
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata, **rest}


def check_address(namespace: str, name: str, obj: Json) -> None:
    """Raises 400 unless the object has the name on the URL, and no other namespace."""
    metadata = obj.get("metadata") or {}
    _check_namespace(namespace, metadata)
    claimed = metadata.get("name")
    if not claimed:
        why = "was undeterminable: name must be provided"
        raise bad_request(f"the name of the object ({name} based on URL) {why}")
    if claimed != name:
        raise bad_request(f"the name of the object ({claimed}) does not match the name on the URL ({name})")


def _check_namespace(namespace: str, metadata: Json) -> None:
    if (metadata.get("namespace") or namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def place(kind: Kind, namespace: str, obj: Json) -> None:
    """Sets the request's namespace, and removes empty labels and annotations. Raises 400 for another namespace."""
    metadata = obj["metadata"]
    for field in ("labels", "annotations"):
        if field in metadata and not metadata[field]:
            del metadata[field]
    _check_namespace(namespace, metadata)
    if kind.namespaced:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)


def name_new(obj: Json, suffix: str) -> str:
    """Returns the object's name. Without one: generateName and `suffix`; without both: "", which is invalid."""
    metadata = obj["metadata"]
    name, base = metadata.get("name") or "", metadata.get("generateName") or ""
    if not name and base:
        name = metadata["name"] = f"{base[:_GENERATED_BASE_MAX]}{suffix}"
    return str(name)


def begin(obj: Json, uid: str, now_s: float, *, generation: bool) -> None:
    """Sets the metadata that the server owns; raises 500 for a resourceVersion that is a number."""
    metadata = obj["metadata"]
    if sent := metadata.get("resourceVersion"):
        with suppress(ValueError):
            if parsed_revision(sent):
                raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
    for field in (*_CLIENT_MAY_NOT_SET, "resourceVersion"):
        metadata.pop(field, None)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = timestamp(now_s)
    if generation:
        metadata["generation"] = 1


def carry(old: Json, new: Json) -> None:
    """Carries over the metadata that the server owns. A changed uid is kept, and is invalid."""
    for field in _CLIENT_MAY_NOT_SET:
        if field == "uid" and new["metadata"].get(field):
            continue
        new["metadata"].pop(field, None)
        if field in old["metadata"]:
            new["metadata"][field] = old["metadata"][field]


def sent_revision(obj: Json) -> int:
    """Returns the resourceVersion that a client sent, 0 if it is absent. Raises 500 if it is not a number."""
    text = (obj.get("metadata") or {}).get("resourceVersion") or "0"
    try:
        return parsed_revision(text)
    except ValueError as error:
        raise StatusError(500, "", str(error)) from error


def check_revision(kind: Kind, name: str, obj: Json, old: Json, *, unconditional: bool) -> None:
    """Raises 409 for a resourceVersion that is not the stored one. 0 is any, or 422 unless `unconditional`."""
    revision = sent_revision(obj)
    if not revision and not unconditional:
        cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(replace(kind, kind=kind.plural), name, [cause])  # this message names the resource
    if revision and revision != parsed_revision(old["metadata"]["resourceVersion"]):
        raise conflict(kind, name, MODIFIED)


def check_uid(kind: Kind, name: str, wanted: str, old: Json | None) -> None:
    """Raises 409 for a write with another uid than the stored object's, which need not exist."""
    if wanted:
        _check_precondition(kind, name, "UID", wanted, old["metadata"]["uid"] if old else "")


def check_preconditions(kind: Kind, obj: Json, preconditions: Json) -> None:
    """Raises 409 if an object that is to be deleted is not the one that the preconditions name.

    The error names the kind; other errors name the resource.
    """
    found, by_kind = obj["metadata"], replace(kind, plural=kind.kind)
    for field, what in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        _check_precondition(by_kind, found["name"], what, preconditions.get(field), found[field])


def _check_precondition(kind: Kind, name: str, what: str, wanted: str | None, found: str) -> None:
    if wanted is not None and wanted != found:
        happened = "modified" if what == "ResourceVersion" else "deleted and then recreated"
        why = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found})"
        raise conflict(kind, name, f"{why}. The object might have been {happened}")


def content(obj: Json) -> Json:
    """Returns the object without metadata and status. metadata.generation counts its changes."""
    return {field: value for field, value in obj.items() if field not in {"metadata", "status"}}


def content_and_labels(obj: Json) -> Json:
    """Returns the content and the labels, which metadata.generation of an EndpointSlice counts too."""
    return {**content(obj), "labels": obj["metadata"].get("labels") or {}}


def with_metadata_of(new: Json, old: Json, fields: Iterable[str]) -> Json:
    kept = {name: value for name, value in new["metadata"].items() if name not in fields}
    return {**new, "metadata": kept | {name: old["metadata"][name] for name in fields if name in old["metadata"]}}
