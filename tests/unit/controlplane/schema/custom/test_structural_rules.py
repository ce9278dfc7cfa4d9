"""Which schemas are structural: each row is a schema, and the paths and texts of what is wrong."""

# ruff: noqa: E501 - rows of tables
from typing import Any

import pytest
from widgets import SCHEMA

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.apimachinery.structural import parsed
from kdns.controlplane.schema.custom.rules import DEPTH_MAX, rule_paths, violations
from kdns.controlplane.schema.custom.types import custom_type

OBJECT: Json = {"type": "object"}


def root(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


def keyed(keys: list[str], **properties: Any) -> Json:
    items = {"type": "object", "required": keys, "properties": properties}
    return root(
        a={"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
    )


ROWS: list[tuple[Json, list[str]]] = [
    (SCHEMA, []),
    ({}, ['s.type: Invalid value: "": must be object at the root']),
    ({"type": "string"}, ['s.type: Invalid value: "string": must be object at the root']),
    (root(a={}), ["s.properties[a].type: Required value: must not be empty for specified object fields"]),
    (root(a={"x-kubernetes-preserve-unknown-fields": True}), []),
    (root(a={"anyOf": [{"not": {"type": "text"}}]}), ["s.properties[a].type: Required value: must not be empty for specified object fields", "s.properties[a].anyOf[0].not.type: Forbidden: must be empty to be structural", 's.properties[a].anyOf[0].not.type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string"']),
    (root(a={"type": "array", "items": [OBJECT]}), ["s.properties[a].items: Forbidden: items must be a schema object and not an array"]),
    (root(a={"type": "array"}), ["s.properties[a].items: Required value: must be specified"]),
    (root(a={"type": "text"}), ['s.properties[a].type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string"']),
    (root(a={"type": "object", "properties": {"b": OBJECT}, "additionalProperties": OBJECT}), ["s.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"]),
    (root(a={"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}), []),
    (root(a={"type": "array", "items": OBJECT, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"]}), ['s.properties[a].x-kubernetes-list-map-keys: Invalid value: ["b"]: entries must all be names of item properties']),
    (root(a={"type": "array", "items": root(b={"type": "string"}), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"]}), ["s.properties[a].items.properties[b].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"]),
    (root(metadata={"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}), []),
    (root(a={"type": "integer", "default": "x"}), ['s.properties[a].default: Invalid value: "x": s.properties[a].default in body must be of type integer: "string"']),
    (root(a={"type": "array", "items": OBJECT | {"x-kubernetes-map-type": "atomic"}, "x-kubernetes-list-type": "set"}), []),
    (root(a={"type": "array", "items": {"type": "array", "items": OBJECT}, "x-kubernetes-list-type": "set"}), []),
    (keyed(["b"], b={"type": "string"}), []),
    (keyed(["b"], b=OBJECT), ['s.properties[a].items.properties[b].type: Invalid value: "object": must be a scalar type if parent array\'s x-kubernetes-list-type is map']),
    (root(a=OBJECT | {"uniqueItems": True, "$ref": "#/x", "definitions": {"b": {}}, "id": "", "x-kubernetes-preserve-unknown-fields": False}), [
        "s.properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        "s.properties[a].definitions: Forbidden: definitions is not supported",
        "s.properties[a].$ref: Forbidden: $ref is not supported",
        "s.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
    ]),
    (root() | {"nullable": True, "additionalProperties": OBJECT}, ["s.additionalProperties: Forbidden: must not be used at the root", "s.nullable: Forbidden: nullable cannot be true at the root"]),
    (root(a=root(b=OBJECT) | {"additionalProperties": False}, b=root(b=OBJECT) | {"additionalProperties": True}), ["s.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"]),
    (root(a={"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}, b=OBJECT | {"x-kubernetes-map-type": "loose"}), ['s.properties[a].x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map"', 's.properties[b].x-kubernetes-map-type: Unsupported value: "loose": supported values: "atomic", "granular"']),
    (root(a={"type": "string", "x-kubernetes-list-type": "set"}, b={"x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-map-type": "atomic"}), ['s.properties[a].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified', "s.properties[b].type: Required value: must be object if x-kubernetes-map-type is specified"]),
    (root(a={"type": "string", "x-kubernetes-embedded-resource": True}), [
        's.properties[a].type: Invalid value: "string": must be object if x-kubernetes-embedded-resource is true',
        "s.properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
    ]),
    (root(a={"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True}), ["s.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true"]),
    (root(a={"type": "array", "items": OBJECT, "x-kubernetes-list-type": "set"}), ["s.properties[a].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set"]),
    (root(a={"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["b"]}), ["s.properties[a].x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty"]),
    (root(a={"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"]}), ['s.properties[a].items.type: Invalid value: "string": must be object if parent array\'s x-kubernetes-list-type is map']),
    (keyed(["b", "b"], b={"type": "string", "nullable": True}), ['s.properties[a].x-kubernetes-list-map-keys: Invalid value: ["b","b"]: must not contain duplicate entries', "s.properties[a].items.properties[b].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable"]),
    (root(a={"type": "string", "oneOf": [{"nullable": True, "description": "x", "pattern": "a"}]}), ["s.properties[a].oneOf[0].description: Forbidden: must be empty to be structural", "s.properties[a].oneOf[0].nullable: Forbidden: must be false to be structural"]),
    (root(a=root(b=OBJECT) | {"anyOf": [{"required": ["b"]}, {"not": {"properties": {"b": {"minProperties": 1}, "c": {"properties": {"d": {}}}}}}]}), [
        "s.properties[a].properties[c]: Required value: because it is defined in s.properties[a].anyOf[1].not.properties[c]",
    ]),
    (root(a={"type": "array", "items": {"items": {"type": 5}}}), ["s.properties[a].items.items.type: Invalid value: Expected `str`, got `int`"]),
    (root(a=OBJECT | {"default": {"b": 1}}), ['s.properties[a].default: Invalid value: {"b":1}: must not have unknown fields']),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "expected"), ROWS)
def test_schemas(schema: Json, expected: list[str]) -> None:
    assert [f"{cause.field}: {cause.message}" for cause in violations(schema, "s")] == expected


@pytest.mark.parametrize(("depth", "count"), [(DEPTH_MAX - 4, 0), (DEPTH_MAX + 1, 1), (100_000, 1)])
def test_schemas_that_are_nested_too_deeply_are_refused(depth: int, count: int) -> None:
    found: Json = {"type": "string"}
    for _ in range(depth):
        found = {"type": "array", "items": found}
    causes = violations(root(a=found), "s")
    assert [cause.field for cause in causes] == ["s"] * count


def test_defaults_of_many_fields_below_each_other() -> None:
    """The check of a default costs what the default has, not what its schema has."""
    field: Json = root(**{f"f{number}": {"type": "string", "default": "x"} for number in range(2000)})
    for _ in range(DEPTH_MAX // 2 - 3):
        field = root(a=field) | {"default": {}}
    assert violations(root(a=field), "s") == []


def test_patterns_are_those_of_re2() -> None:
    (cause,) = violations(root(a={"type": "string", "pattern": r"(?=a)"}), "s")
    assert cause.field == "s.properties[a].pattern"
    assert cause.detail.startswith("must be a valid regular expression, but isn't: ")


def test_fields_of_the_wrong_type_are_named() -> None:
    (cause,) = violations(root(a={"type": 5}), "s")
    assert (cause.field, cause.message) == ("s.properties[a].type", "Invalid value: Expected `str`, got `int`")


def test_rules_are_named_by_their_places() -> None:
    rule = {"x-kubernetes-validations": [{"rule": "true"}]}
    schema = root(
        a={"type": "array", "items": {"type": "object", **rule}},
        b={"type": "object", "additionalProperties": {"type": "string", **rule}},
    )
    assert list(rule_paths(schema)) == ["a[*]", "b.*"]
    assert list(rule_paths(SCHEMA)) == [""]


@pytest.mark.parametrize(
    ("items", "form"),
    [
        ({"type": "string"}, "set"),
        ({"type": "string", "nullable": True}, "atomic"),
        ({"type": "array", "items": {"type": "string"}}, "atomic"),
        ({"type": "object", "x-kubernetes-map-type": "atomic"}, "atomic"),
    ],
)
def test_sets_of_scalars_have_an_owner_for_each_item(items: Json, form: str) -> None:
    schema = parsed(root(a={"type": "array", "items": items, "x-kubernetes-list-type": "set"}))
    assert custom_type(schema).fields["a"].form == form
