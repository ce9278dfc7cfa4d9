"""What a manifest says, and what becomes of a stored object when its manifest changes. No files here.

The update is kubectl apply's: three objects are compared, the manifest as it was applied last, the manifest now and
the stored object. What left the manifest leaves the object; what others set stays. What was applied last is remembered
in an annotation of the object, so that a restart on a kept database knows it too.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from kdns.controlplane import schema
from kdns.controlplane.kinds import (
    ENDPOINTS,
    EVENT,
    IP_ADDRESS,
    KINDS,
    NAMESPACE,
    NODE,
    SERVICE,
    SERVICE_CIDR,
    Json,
    Kind,
)
from kdns.errors import ManifestError

SOURCE = "kdns/manifest"
"""The annotation that names the file an object comes from."""

LAST_APPLIED = "kdns/last-applied-configuration"
"""The annotation that holds the manifest as it was applied last, as JSON."""

SERVER_FIELDS = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
"""Metadata which only the server sets: a manifest may hold it when it was exported."""

_BY_NAME = {(kind.api_version, kind.kind): kind for kind in KINDS}
_RANK = {NAMESPACE: 0, NODE: 1, SERVICE_CIDR: 1, IP_ADDRESS: 1, SERVICE: 2, ENDPOINTS: 4, EVENT: 5}
_OTHER_RANK = 3

Key: TypeAlias = tuple[Kind, str, str]
"""(kind, namespace, name); the namespace is "" for cluster-scoped objects."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object as a file defines it; line counts from 1."""

    path: str
    line: int
    kind: Kind
    namespace: str
    name: str
    obj: Json

    @property
    def key(self) -> Key:
        """What makes two manifests speak of the same object."""
        return self.kind, self.namespace, self.name

    def says_the_same_as(self, other: Manifest | None) -> bool:
        """Whether applying it again would change nothing; the line does not count."""
        return other is not None and self.path == other.path and self.obj == other.obj

    def wanted(self, source: str) -> Json:
        """The object to store: the manifest without server fields, with the two annotations."""
        obj = copy.deepcopy(self.obj)
        metadata = obj["metadata"]
        for name in SERVER_FIELDS:
            metadata.pop(name, None)
        if self.namespace:
            metadata["namespace"] = self.namespace
        last_applied = json.dumps(obj, separators=(",", ":"), sort_keys=True)
        annotations = metadata.get("annotations") or {}
        metadata["annotations"] = annotations | {SOURCE: source, LAST_APPLIED: last_applied}
        return obj


@dataclass(frozen=True, slots=True)
class UnknownKind:
    """A manifest of a kind that is not served here."""

    path: str
    line: int
    api_version: str
    kind: str

    @property
    def error(self) -> ManifestError:
        """The same as a message, which names the versions that are served where there are any."""
        served = [kind.api_version for kind in KINDS if kind.kind == self.kind]
        hint = f", {self.kind} is served as {' and '.join(served)}" if served else ""
        return ManifestError(
            self.path, self.line, "kind", f"skipped: {self.api_version} {self.kind} is not served{hint}"
        )


def manifest_of(path: str, line: int, value: object) -> Manifest | UnknownKind:
    """The manifest that one parsed document is; ManifestError where it does not say what it is about."""
    if not isinstance(value, dict):
        raise ManifestError(path, line, "", f"found {_described(value)}, wanted an object with apiVersion and kind")
    api_version, kind_name = (_text(path, line, value, field) for field in ("apiVersion", "kind"))
    kind = _BY_NAME.get((api_version, kind_name))
    if kind is None:
        return UnknownKind(path, line, api_version, kind_name)
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise ManifestError(path, line, "metadata", f"found {_described(metadata)}, wanted an object with a name")
    name = _text(path, line, metadata, "name", "metadata.")
    _check_strings(path, line, metadata)
    namespace = ""
    if kind.namespaced:
        namespace = _text(path, line, metadata, "namespace", "metadata.") if metadata.get("namespace") else "default"
    return Manifest(path, line, kind, namespace, name, value)


def in_order(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Namespaces before what lives in them, ranges before Services before Pods, fixed cluster IPs before others."""
    return sorted(manifests, key=lambda manifest: (_RANK.get(manifest.kind, _OTHER_RANK), _allocates(manifest)))


def source_of(obj: Json) -> str:
    """The file an object comes from, "" for one that no file defined."""
    return str((obj["metadata"].get("annotations") or {}).get(SOURCE, ""))


def last_applied(obj: Json) -> Json:
    """The manifest as it was applied last; {} where nobody remembers."""
    text = (obj["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def merged(kind: Kind, live: Json, wanted: Json) -> Json:
    """The stored object after its manifest changed to `wanted`."""
    return _Merge(kind).objects((), last_applied(live), wanted, live)


@cache
def list_keys(kind: Kind, path: str) -> Mapping[str, Any] | None:
    """The fields that tell the items of the list at `path` apart, with their defaults.

    None is for a list that is replaced whole; no fields are for a set of scalars.
    """
    try:
        found = schema.field_at(kind, path)
    except KeyError:
        return None
    if found.list_type == "set":
        return {}
    return {key: schema.fields(found.type)[key].default for key in found.list_map_keys} or None


@dataclass(frozen=True, slots=True)
class _Merge:
    kind: Kind

    def objects(self, path: tuple[str, ...], last: Json, wanted: Json, live: Json) -> Json:
        result = {name: value for name, value in live.items() if name not in last or name in wanted}
        for name, value in wanted.items():
            result[name] = self.values((*path, name), last.get(name), value, live.get(name))
        return {name: value for name, value in result.items() if value is not None}

    def values(self, path: tuple[str, ...], last: Any, wanted: Any, live: Any) -> Any:
        if isinstance(wanted, dict) and isinstance(live, dict):
            return self.objects(path, last if isinstance(last, dict) else {}, wanted, live)
        if isinstance(wanted, list) and isinstance(live, list):
            keys = list_keys(self.kind, ".".join(path))
            if keys is not None:
                return self.lists(path, keys, last if isinstance(last, list) else [], wanted, live)
        return wanted

    def lists(
        self, path: tuple[str, ...], keys: Mapping[str, Any], last: list[Any], wanted: list[Any], live: list[Any]
    ) -> list[Any]:
        """The manifest's items in its order, then those which only others know."""
        last_by, wanted_by, live_by = (
            {_identity(item, keys): item for item in items} for items in (last, wanted, live)
        )
        if len(wanted_by) < len(wanted):
            return wanted  # the same item twice: validation will say so
        result = [self.values(path, last_by.get(key), item, live_by.get(key)) for key, item in wanted_by.items()]
        return result + [item for key, item in live_by.items() if key not in wanted_by and key not in last_by]


def _identity(item: Any, keys: Mapping[str, Any]) -> str:
    if keys and isinstance(item, dict):
        return json.dumps([item.get(name, default) for name, default in keys.items()])
    return json.dumps(item, sort_keys=True)


def _allocates(manifest: Manifest) -> bool:
    spec = manifest.obj.get("spec")
    return manifest.kind is SERVICE and not (isinstance(spec, dict) and spec.get("clusterIP"))


def _text(path: str, line: int, obj: Json, field: str, prefix: str = "") -> str:
    value = obj.get(field)
    if not isinstance(value, str) or not value:
        raise ManifestError(path, line, prefix + field, f"found {_described(value)}, wanted text")
    return value


def _check_strings(path: str, line: int, metadata: Json) -> None:
    for field in ("labels", "annotations"):
        values = metadata.get(field)
        if values is not None and not isinstance(values, dict):
            raise ManifestError(path, line, f"metadata.{field}", f"found {_described(values)}, wanted keys with text")
        for key, value in (values or {}).items():
            if not isinstance(value, str):
                reason = f"found {_described(value)}, wanted text: put it in quotes"
                raise ManifestError(path, line, f"metadata.{field}.{key}", reason)


def _described(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case dict():
            return "an object"
        case list():
            return "a list"
        case _:
            return json.dumps(value)
