"""Type and metadata of the objects in custom resources (x-kubernetes-embedded-resource)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import expected, invalid_value, invalid_values
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.validation import validate_meta

_STRINGS: Final = ("name", "generateName", "namespace")
_MAPS: Final = ("labels", "annotations")


def embedded_causes(obj: Json, path: str) -> Iterator[Cause]:
    """Yields what is wrong with the type and metadata of an embedded resource; that they are there is its schema's.

    Of metadata the names, labels and annotations are validated.
    """
    yield from _type_causes(obj, path)
    if (metadata := obj.get("metadata")) is not None:
        yield from _metadata_causes(metadata, f"{path}.metadata")


def _type_causes(value: Json, path: str) -> Iterator[Cause]:
    for name in ("apiVersion", "kind"):
        if not isinstance(text := value.get(name) or "", str):
            yield invalid_value(f"{path}.{name}", text, "must be a string")
        elif name == "apiVersion" and text.count("/") > 1:
            yield invalid_value(f"{path}.{name}", text, "unexpected GroupVersion string")
        elif name == "kind" and text:
            yield from invalid_values(f"{path}.{name}", text, formats.dns_label_1035(text.lower()))


def _metadata_causes(metadata: Any, path: str) -> Iterator[Cause]:
    wrong = list(_mistyped(metadata))
    for field, why in wrong:
        yield Cause(f"{path}{field}", "Invalid value", why)
    if wrong:
        return
    known = {name: metadata[name] for name in (*_STRINGS, *_MAPS) if metadata.get(name)}
    named = {"metadata": {"name": "unnamed", **known}}
    for cause in validate_meta(named, formats.path_segment, namespaced=bool(known.get("namespace"))):
        yield Cause(path + cause.field.removeprefix("metadata"), cause.type, cause.detail)


def _mistyped(metadata: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(metadata, dict):
        yield "", expected("an object", metadata)
        return
    for name in _STRINGS:
        if not isinstance(metadata.get(name), str | None):
            yield f".{name}", expected("a string", metadata[name])
    for name in _MAPS:
        if not isinstance(values := metadata.get(name), dict | None):
            yield f".{name}", expected("an object", values)
            continue
        for key, text in (values or {}).items():
            if not isinstance(text, str):
                yield f".{name}[{key}]", expected("a string", text)
