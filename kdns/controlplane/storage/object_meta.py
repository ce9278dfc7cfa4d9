"""The type and metadata of an object, which the API treats alike for every kind."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import StatusError, bad_request, conflict, invalid
from kdns.controlplane.apimachinery.field_errors import expected, invalid_value
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.schema.check import another_type
from kdns.controlplane.storage.store import MODIFIED, parsed_revision

NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Letters and digits of generated names (Kubernetes, util/rand)."""

_GENERATED_BASE_MAX = 58
_OURS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_CLIENT_MAY_NOT_SET = (*_OURS, "selfLink")


def is_terminating(obj: Json) -> bool:
    """metadata.deletionTimestamp is set."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def key_of(obj: Json) -> Key:
    """Namespace and name; "" if absent."""
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata.get("name") or ""


def timestamp(now_s: float) -> str:
    """meta/v1 Time: RFC 3339, UTC, whole seconds."""
    return _timestamp(math.floor(now_s))


@lru_cache(maxsize=16)
def _timestamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def typed(kind: Kind, obj: Json) -> Json:
    """Puts apiVersion and kind first. Raises 400 for another type, and for labels or annotations that are no
    strings.
    """
    if why := another_type(kind, obj):
        raise bad_request(why)
    metadata = obj.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise bad_request(f"metadata: {expected('an object', metadata)}")
    for field in ("labels", "annotations"):
        values = metadata.get(field) or {}
        if not (isinstance(values, dict) and all(isinstance(value, str) for value in values.values())):
            raise bad_request(f"metadata.{field}: must be a map of strings; quote numbers and booleans")
    fields = {field: value for field, value in obj.items() if field not in {"apiVersion", "kind", "metadata"}}
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata, **fields}


def check_address(namespace: str, name: str, obj: Json) -> None:
    """Raises 400 unless the name is that on the URL, and the namespace is absent or the request's."""
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


def set_namespace(kind: Kind, namespace: str, obj: Json) -> None:
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


def ensure_name(obj: Json, suffix: str) -> str:
    """Names an object by generateName and `suffix` if it has no name. "", which is invalid, if it has neither."""
    metadata = obj["metadata"]
    name, base = metadata.get("name") or "", metadata.get("generateName") or ""
    if not name and base:
        name = metadata["name"] = f"{base[:_GENERATED_BASE_MAX]}{suffix}"
    return str(name)


def set_server_fields(obj: Json, uid: str, now_s: float, *, generation: bool) -> None:
    """Sets the metadata that the server owns. Raises 500 for a resourceVersion other than 0 that is a number."""
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


def carry_server_fields(old: Json, new: Json) -> None:
    """Copies the metadata that the server owns. A uid that the client changed stays, and validation refuses it."""
    for field in _CLIENT_MAY_NOT_SET:
        if field == "uid" and new["metadata"].get(field):
            continue
        new["metadata"].pop(field, None)
        if field in old["metadata"]:
            new["metadata"][field] = old["metadata"][field]


def sent_revision(obj: Json) -> int:
    """The resourceVersion that a client sent, 0 if it is absent. Raises 500 if it is not a number."""
    text = (obj.get("metadata") or {}).get("resourceVersion") or "0"
    try:
        return parsed_revision(text)
    except ValueError as error:
        raise StatusError(500, "", str(error)) from error


def check_revision(kind: Kind, name: str, obj: Json, old: Json, *, unconditional: bool) -> None:
    """Raises 409 for a resourceVersion that is not the stored one.

    Without one (or with 0) it raises 422, unless `unconditional`.
    """
    revision = sent_revision(obj)
    if not revision and not unconditional:
        cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(replace(kind, kind=kind.plural), name, [cause])  # this message names the resource
    if revision and revision != parsed_revision(old["metadata"]["resourceVersion"]):
        raise conflict(kind, name, MODIFIED)


def check_uid(kind: Kind, name: str, expected: str, old: Json | None) -> None:
    """Raises 409 if the client names another uid than the stored object's, or one of an object that does not exist."""
    if expected:
        _check_precondition(kind, name, "UID", expected, old["metadata"]["uid"] if old else "")


def check_preconditions(kind: Kind, obj: Json, preconditions: Json) -> None:
    """Raises 409 if the object to delete is not the one that the preconditions name.

    The error names the kind; other errors name the resource.
    """
    metadata, by_kind = obj["metadata"], replace(kind, plural=kind.kind)
    for field, what in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        _check_precondition(by_kind, metadata["name"], what, preconditions.get(field), metadata[field])


def _check_precondition(kind: Kind, name: str, what: str, expected: str | None, stored: str) -> None:
    if expected is not None and expected != stored:
        happened = "modified" if what == "ResourceVersion" else "deleted and then recreated"
        why = f"the {what} in the precondition ({expected}) does not match the {what} in record ({stored})"
        raise conflict(kind, name, f"{why}. The object might have been {happened}")


def content(obj: Json) -> Json:
    """Everything but metadata and status. metadata.generation counts its changes."""
    return {field: value for field, value in obj.items() if field not in {"metadata", "status"}}


def content_and_labels(obj: Json) -> Json:
    """metadata.generation of an EndpointSlice also counts changes of its labels."""
    return {**content(obj), "labels": obj["metadata"].get("labels") or {}}


def with_metadata_of(new: Json, old: Json, fields: Iterable[str]) -> Json:
    metadata = {name: value for name, value in new["metadata"].items() if name not in fields}
    return {**new, "metadata": metadata | {name: old["metadata"][name] for name in fields if name in old["metadata"]}}
