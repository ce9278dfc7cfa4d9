"""A manifest: one object as a file defines it. `kdns.controlplane.manifests.io.files` reads the files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import TypeAlias

from kdns.controlplane.apimachinery.annotations import LAST_APPLIED, MANIFEST
from kdns.controlplane.apimachinery.kinds import (
    DEFINITION,
    ENDPOINTS,
    EVENT,
    IP_ADDRESS,
    NAMESPACE,
    NODE,
    SERVICE,
    SERVICE_CIDR,
    Json,
    Kind,
    Kinds,
)
from kdns.controlplane.manifests.three_way_merge import text_of
from kdns.errors import ManifestError
from kdns.spelling import closest

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
"""Metadata that the server sets; exported objects have it, and it is dropped."""

_RANK = {DEFINITION: -1, NAMESPACE: 0, NODE: 1, SERVICE_CIDR: 1, IP_ADDRESS: 1, SERVICE: 2, ENDPOINTS: 4, EVENT: 5}
_OTHER_RANK = 3
_GENERATED_BASE_MAX = 58

Key: TypeAlias = tuple[Kind, str, str]
"""(kind, namespace, name); the namespace is "" for cluster-scoped objects."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object as a file defines it, as JSON; lines count from 1. The kind is that of the served version.

    Thousands of objects stay in memory as long as their files are followed, and JSON takes a fifth of the memory of
    dicts.
    """

    path: str
    line: int
    kind: Kind
    namespace: str
    name: str
    text: str

    @property
    def obj(self) -> Json:
        """Each caller gets a copy of its own."""
        obj: Json = json.loads(self.text)
        return obj

    @property
    def key(self) -> Key:
        return self.kind.stored_kind, self.namespace, self.name

    def is_equal(self, other: Manifest | None) -> bool:
        """Both define the same object in the same file, on whatever line."""
        return other is not None and self.path == other.path and self.text == other.text

    def written(self, field: str) -> str:
        """The field as the manifest spells it: API errors name clusterIPs and podCIDRs even if it has the singular
        field.
        """
        spec = self.obj.get("spec")
        for name in ("clusterIP", "podCIDR"):
            if field.startswith(f"spec.{name}s") and isinstance(spec, dict) and f"{name}s" not in spec:
                return f"spec.{name}"
        return field

    def to_apply(self, source: str) -> Json:
        """Drops `SERVER_FIELDS`, and adds annotations for its file and the last manifest."""
        obj = self.obj
        metadata = obj["metadata"]
        for name in SERVER_FIELDS:
            metadata.pop(name, None)
        if self.namespace:
            metadata["namespace"] = self.namespace
        last_applied = text_of(obj)
        annotations = metadata.get("annotations") or {}
        if isinstance(annotations, dict):
            metadata["annotations"] = annotations | {MANIFEST: source_text(source), LAST_APPLIED: last_applied}
        return obj


def json_text(obj: Json) -> str:
    return json.dumps(obj, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in one field of a manifest, "" for the whole object."""

    manifest: Manifest
    field: str
    reason: str

    @property
    def location(self) -> tuple[int, str]:
        """The line of the object in its file, and the field as it is spelled there."""
        return self.manifest.line, self.manifest.written(self.field)


@dataclass(frozen=True, slots=True)
class UnknownKind:
    """A manifest of a kind that is not stored; `hint` says why, or which kind may be meant. `value` is the whole
    object.
    """

    path: str
    line: int
    api_version: str
    kind: str
    hint: str
    value: Json

    @property
    def error(self) -> ManifestError:
        reason = f"skipped: {self.api_version} {self.kind} is {self.hint}"
        return ManifestError(self.path, self.line, "kind", reason)


def _hint(api_version: str, name: str, kinds: Kinds) -> str:
    """Why the kind has no manifests: the API versions that are served, or the kind that may be meant."""
    if kinds.by_type(api_version, name):
        return "a question to the API, which is answered and not stored"
    served = [kind.api_version for kind in kinds if kind.kind == name]
    if served:
        return f"not served, {name} is served as {' and '.join(served)}"
    near = closest(name, [kind.kind for kind in kinds.stored if kind.api_version == api_version])
    return f"not served; did you mean {near}?" if near else "not served"


def with_generated_name(path: str, value: object, taken: set[str]) -> object:
    """Names a document that has only generateName; the name is added to those that are `taken`.

    The name is a hash of the document, so a restart finds its object, and an edit creates another one in its place.
    Differs: `kubectl create` creates another object each time.
    """
    if not (isinstance(value, dict) and isinstance(metadata := value.get("metadata"), dict)):
        return value
    base = metadata.get("generateName")
    if metadata.get("name") or not (isinstance(base, str) and base):
        return value
    text = f"{source_text(path)}\n{json_text(value)}\n"
    names = (f"{base[:_GENERATED_BASE_MAX]}{sha256(f'{text}{n}'.encode()).hexdigest()[:5]}" for n in count())
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return {**value, "metadata": {**metadata, "name": name}}


def manifest_of(path: str, line: int, value: object, kinds: Kinds) -> Manifest | UnknownKind:
    """Raises ManifestError for a document without apiVersion, kind or name."""
    if not isinstance(value, dict):
        raise ManifestError(path, line, "", f"expected an object with apiVersion and kind, got {_described(value)}")
    api_version, kind_name = (_text(path, line, value, field) for field in ("apiVersion", "kind"))
    kind = kinds.by_type(api_version, kind_name)
    if kind is None or kind.is_review:
        return UnknownKind(path, line, api_version, kind_name, _hint(api_version, kind_name, kinds), value)
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise ManifestError(path, line, "metadata", f"expected an object with a name, got {_described(metadata)}")
    name = _text(path, line, metadata, "name", "metadata.")
    namespace = ""
    if kind.namespaced:
        namespace = _text(path, line, metadata, "namespace", "metadata.") if metadata.get("namespace") else "default"
    return Manifest(path, line, kind, namespace, name, json_text(value))


def unserved(manifest: Manifest, kinds: Kinds) -> UnknownKind:
    kind = manifest.kind
    hint = _hint(kind.api_version, kind.kind, kinds)
    return UnknownKind(manifest.path, manifest.line, kind.api_version, kind.kind, hint, manifest.obj)


def in_order(manifests: Iterable[Manifest]) -> list[Manifest]:
    """In the order of applying: CustomResourceDefinitions, Namespaces, address ranges, Services with a clusterIP,
    other Services, others.
    """
    return sorted(manifests, key=lambda manifest: (_RANK.get(manifest.kind, _OTHER_RANK), _allocates(manifest)))


def source_text(path: str) -> str:
    """A path as an annotation can have it: bytes that are not UTF-8 are escaped."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


def source_of(obj: Json) -> str:
    """The path of the manifest that defines the object, or ""."""
    return str((obj["metadata"].get("annotations") or {}).get(MANIFEST, ""))


def _allocates(manifest: Manifest) -> bool:
    if manifest.kind is not SERVICE:
        return False
    spec = manifest.obj.get("spec")
    return not (isinstance(spec, dict) and spec.get("clusterIP"))


def _text(path: str, line: int, obj: Json, field: str, prefix: str = "") -> str:
    value = obj.get(field)
    if not isinstance(value, str) or not value:
        raise ManifestError(path, line, prefix + field, f"expected a string, got {_described(value)}")
    return value


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
