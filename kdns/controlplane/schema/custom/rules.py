"""The rules of structural schemas (Kubernetes documentation, "Specifying a structural schema"), as tables of words.

Outside of allOf, anyOf, oneOf and not (the junctors) every schema has a type. Inside, a schema only restricts values of
fields that are specified outside. Differs: restrictions on metadata are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import forbidden, invalid_value, required, unsupported
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.apimachinery.structural import Schema, parsed
from kdns.controlplane.schema.custom.patterns import compiled
from kdns.controlplane.schema.custom.types import RESOURCE_FIELDS, pruned
from kdns.controlplane.schema.custom.validation import Validator

DEPTH_MAX: Final = 150
"""Levels of the JSON of a schema; every walk along a schema has a few Python frames per level."""
_LIST_TYPE: Final = "x-kubernetes-list-type"
_LIST_KEYS: Final = "x-kubernetes-list-map-keys"
_MAP_TYPE: Final = "x-kubernetes-map-type"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "type": ("array", "boolean", "integer", "number", "object", "string"),
    _LIST_TYPE: ("atomic", "set", "map"),
    _MAP_TYPE: ("atomic", "granular"),
}
_TYPED: Final = {_LIST_TYPE: ("array", "specified"), _MAP_TYPE: ("object", "specified"), _EMBEDDED: ("object", "true")}
"""The type that a schema with the word must have."""

_FORBIDDEN: Final[Mapping[str, str]] = {
    "uniqueItems": "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
    **{
        word: f"{word} is not supported"
        for word in ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
    },
}
_FORBIDDEN_IN_JUNCTORS: Final[Mapping[str, str]] = {
    word: f"must be {state} to be structural"
    for state, words in {
        "empty": ("type", "title", "description", _LIST_KEYS, "x-kubernetes-validations"),
        "undefined": ("additionalProperties", "default", "externalDocs", _LIST_TYPE, _MAP_TYPE),
        "false": ("nullable", _PRESERVES, _EMBEDDED, _INT_OR_STRING),
    }.items()
    for word in words
}
_JUNCTOR: Final = re.compile(r"\.(?:(?:allOf|anyOf|oneOf)\[[0-9]+\]|not(?![^.]))")
_INTEGER_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
"""The only anyOf whose schemas may have types."""


class _Place(NamedTuple):
    """A schema in a schema: its path, that of its values such as `spec.ports[*]`, and whether it is in a junctor."""

    path: str
    field: str
    schema: Json
    in_junctor: bool


def violations(source: Json, path: str) -> list[Cause]:
    if _is_deeper(source, DEPTH_MAX):
        return [invalid_value(path, "", f"must not be nested more than {DEPTH_MAX} levels deep")]
    try:
        schema = parsed(source)
    except msgspec.ValidationError as error:
        return [_mistyped(source, path, error)]
    if schema.type != "object":
        return [invalid_value(f"{path}.type", schema.type, "must be object at the root")]
    causes, places = list(_root(source, path)), list(_places(source, path))
    for place in places:
        causes += _words(place)
        causes += () if place.in_junctor else _structure(place)
    causes += _unspecified(places)
    return causes or list(_defaults(schema, path))


def _mistyped(source: Any, path: str, error: msgspec.ValidationError) -> Cause:
    """The cause for a value that msgspec cannot decode; `[...]` in its path stands for any property."""
    why, _, where = str(error).partition(" - at `$")
    before, is_cut, _ = where.rstrip("`").partition("[...]")
    if not is_cut:
        if before.endswith(".items") and "got `array`" in why:
            return forbidden(f"{path}{before}", "items must be a schema object and not an array")
        return Cause(f"{path}{before}", "Invalid value", why)
    for step in re.findall(r"\w+", before):
        source = source[int(step) if isinstance(source, list) else step]
    for name, below in source.items():
        try:
            msgspec.convert(below, Schema)
        except msgspec.ValidationError as inner:
            return _mistyped(below, f"{path}{before}[{name}]", inner)
    return Cause(f"{path}{before}", "Invalid value", why)


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        below = [container.values() if isinstance(container, Mapping) else container for container in level]
        level = [value for values in below for value in values if isinstance(value, Mapping | list)]
    return bool(level)


def _places(schema: Json, path: str, field: str = "", *, in_junctor: bool = False) -> Iterator[_Place]:
    yield _Place(path, field, schema, in_junctor)
    for name, below in (schema.get("properties") or {}).items():
        inner = f"{field}.{name}" if field else name
        yield from _places(below, f"{path}.properties[{name}]", inner, in_junctor=in_junctor)
    for word, step in (("additionalProperties", ".*" if field else "*"), ("items", "[*]")):
        if isinstance(below := schema.get(word), dict):
            yield from _places(below, f"{path}.{word}", f"{field}{step}", in_junctor=in_junctor)
    for word in ("allOf", "anyOf", "oneOf"):
        alternatives = schema.get(word) or []
        for index, below in enumerate(alternatives if alternatives != _INTEGER_OR_STRING else ()):
            yield from _places(below, f"{path}.{word}[{index}]", field, in_junctor=True)
    if below := schema.get("not"):
        yield from _places(below, f"{path}.not", field, in_junctor=True)


def _root(schema: Json, path: str) -> Iterator[Cause]:
    if "additionalProperties" in schema:
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if schema.get("nullable"):
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")


def _words(place: _Place) -> Iterator[Cause]:
    """Forbidden words, unknown values of others, and the types that they need."""
    path, schema, kind = place.path, place.schema, place.schema.get("type") or ""
    for word, why in {**_FORBIDDEN, **(_FORBIDDEN_IN_JUNCTORS if place.in_junctor else {})}.items():
        if schema.get(word):
            yield forbidden(f"{path}.{word}", why)
    for word, known in _VALUES.items():
        if (value := schema.get(word)) and value not in known:
            yield unsupported(f"{path}.{word}", value, known)
    for word, (required_type, state) in _TYPED.items():
        if schema.get(word) and kind != required_type:
            why = f"must be {required_type} if {word} is {state}"
            yield invalid_value(f"{path}.type", kind, why) if kind else required(f"{path}.type", why)
    if schema.get(_PRESERVES) is False:
        yield invalid_value(f"{path}.{_PRESERVES}", value=False, detail="must be true or undefined")
    for word in (_PRESERVES, _EMBEDDED):
        if schema.get(_INT_OR_STRING) and schema.get(word):
            yield invalid_value(f"{path}.{word}", value=True, detail=f"must be false if {_INT_OR_STRING} is true")
    if pattern := schema.get("pattern"):
        try:
            compiled(pattern)
        except ValueError as error:
            yield invalid_value(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")


def _unspecified(places: Iterable[_Place]) -> Iterator[Cause]:
    """Fields that only junctors have, without those below them."""
    specified = {place.field for place in places if not place.in_junctor}
    above = ""
    for place in places:
        if place.in_junctor and place.field not in specified and not (above and place.path.startswith(above)):
            above = f"{place.path}."
            yield required(_JUNCTOR.sub("", place.path), f"because it is defined in {place.path}")


def _structure(place: _Place) -> Iterator[Cause]:
    """What a schema outside of junctors lacks, and parts that exclude each other."""
    path, schema, others = place.path, place.schema, place.schema.get("additionalProperties")
    if not any(map(schema.get, ("type", _INT_OR_STRING, _PRESERVES, _EMBEDDED))):
        what = "array items" if path.endswith(".items") else "object fields"
        yield required(f"{path}.type", f"must not be empty for specified {what}")
    if schema.get("type") == "array" and not schema.get("items"):
        yield required(f"{path}.items", "must be specified")
    if others not in (None, True) and schema.get("properties"):
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if schema.get(_EMBEDDED):
        if others is not None:
            yield forbidden(f"{path}.additionalProperties", f"must not be used if {_EMBEDDED} is set")
        if not (schema.get(_PRESERVES) or schema.get("properties")):
            yield required(f"{path}.properties", f"must not be empty if {_EMBEDDED} is true without {_PRESERVES}")
    yield from _items(path, schema, schema.get("items") or {})


def _items(path: str, schema: Json, items: Json) -> Iterator[Cause]:
    """Properties of items that a set or map cannot have."""
    list_type, keys = schema.get(_LIST_TYPE), schema.get(_LIST_KEYS) or ()
    if list_type in {"set", "map"} and items.get("nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when {_LIST_TYPE} is {list_type}")
    word = {"array": _LIST_TYPE, "object": _MAP_TYPE}.get(items.get("type") or "")
    if list_type == "set" and word and items.get(word, "atomic" if word == _LIST_TYPE else None) != "atomic":
        why = f"must be atomic as item of a list with {_LIST_TYPE}=set"
        yield invalid_value(f"{path}.items.{word}", items.get(word), why)
    if keys and list_type != "map":
        where, why = f"{path}.{_LIST_TYPE}", f"must be map if {_LIST_KEYS} is non-empty"
        yield invalid_value(where, list_type, why) if list_type else required(where, why)
    if list_type == "map":
        yield from _map_keys(path, keys, items)


def _map_keys(path: str, keys: Sequence[str], items: Json) -> Iterator[Cause]:
    where, properties = f"{path}.{_LIST_KEYS}", items.get("properties") or {}
    if not keys:
        yield required(where, f"must not be empty if {_LIST_TYPE} is map")
    if items.get("type") != "object":
        why = f"must be object if parent array's {_LIST_TYPE} is map"
        yield invalid_value(f"{path}.items.type", items.get("type") or "", why)
        return
    if len(set(keys)) < len(keys):
        yield invalid_value(where, keys, "must not contain duplicate entries")
    if not properties.keys() >= set(keys):
        yield invalid_value(where, keys, "entries must all be names of item properties")
    for key, field in properties.items():
        if key in keys:
            yield from _map_key(f"{path}.items.properties[{key}]", field, is_required=key in items.get("required", ()))


def _map_key(path: str, field: Json, *, is_required: bool) -> Iterator[Cause]:
    why = f"this property is in {_LIST_KEYS}, so it"
    if field.get("type") in {"array", "object"}:
        yield invalid_value(
            f"{path}.type", field["type"], f"must be a scalar type if parent array's {_LIST_TYPE} is map"
        )
    elif not is_required and field.get("default") is None:
        yield required(f"{path}.default", f"{why} must have a default or be a required property")
    if field.get("nullable"):
        yield forbidden(f"{path}.nullable", f"{why} cannot be nullable")


def _defaults(schema: Schema, path: str) -> Iterator[Cause]:
    if schema.has_default:
        if pruned(schema, schema.default, is_resource=schema.embedded) != schema.default:
            yield invalid_value(f"{path}.default", schema.default, "must not have unknown fields")
        for cause in Validator(schema).causes(schema.default, f"{path}.default"):
            yield invalid_value(f"{path}.default", schema.default, cause.detail or cause.message)
    for name, field in schema.properties.items():
        if name not in RESOURCE_FIELDS:
            yield from _defaults(field, f"{path}.properties[{name}]")
    for word, below in (("additionalProperties", schema.additional_properties), ("items", schema.items)):
        if isinstance(below, Schema):
            yield from _defaults(below, f"{path}.{word}")


def rule_paths(source: Json) -> Iterator[str]:
    """The places of a valid openAPIV3Schema that have rules in CEL, such as `spec.ports[*]`; "" for the root."""
    return (place.field for place in _places(source, "") if place.schema.get("x-kubernetes-validations"))


def type_at(source: Json, names: list[str]) -> str | None:
    """The type of the values at a path of fields, "" if they may have several; None for no such field."""
    for name in names:
        others = source.get("additionalProperties")
        below = (source.get("properties") or {}).get(name, others if isinstance(others, dict) else None)
        if below is None:
            return None
        source = below
    return source.get("type") or ""
