"""Values against schemas: each row is a schema, a value, and the causes."""

# ruff: noqa: E501 - rows of tables
from typing import Any

import pytest
from widgets import SCHEMA

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.apimachinery.structural import parsed
from kdns.controlplane.schema.check import mistakes
from kdns.controlplane.schema.custom import validation
from kdns.controlplane.schema.custom.rules import DEPTH_MAX
from kdns.controlplane.schema.custom.types import defaulted, pruned
from kdns.controlplane.schema.custom.validation import CAUSES_MAX, Validator

STRING: Json = {"type": "string"}
INTEGER: Json = {"type": "integer"}
IN_BODY = "x in body"

ROWS: list[tuple[Json, Any, list[str]]] = [
    (STRING, "a", []),
    (STRING, 1, [f'Invalid value: "integer": {IN_BODY} must be of type string: "integer"']),
    (STRING, None, [f'Invalid value: "null": {IN_BODY} must be of type string: "null"']),
    ({"type": "string", "nullable": True}, None, []),
    (INTEGER, 1.0, []),
    (INTEGER, 1.5, [f'Invalid value: "number": {IN_BODY} must be of type integer: "number"']),
    (INTEGER, True, [f'Invalid value: "boolean": {IN_BODY} must be of type integer: "boolean"']),
    ({"type": "number"}, 1, []),
    ({"type": "integer", "format": "int32"}, 2**31, [f'Invalid value: 2147483648: {IN_BODY} must be of type int32: "2147483648"']),
    ({"x-kubernetes-int-or-string": True}, "http", []),
    ({"x-kubernetes-int-or-string": True}, [], [f'Invalid value: "array": {IN_BODY} must be of type integer,string: "array"']),
    ({"type": "string", "enum": ["a", "b"]}, "c", ['Unsupported value: "c": supported values: "a", "b"']),
    ({"type": "boolean", "enum": [True]}, True, []),
    ({"type": "integer", "enum": [1, 2]}, True, [f'Invalid value: "boolean": {IN_BODY} must be of type integer: "boolean"', 'Unsupported value: true: supported values: "1", "2"']),
    ({"type": "string", "pattern": "^(a+)+$"}, "a" * 30 + "b", [f"Invalid value: \"{'a' * 30}b\": {IN_BODY} should match '^(a+)+$'"]),
    ({"type": "string", "pattern": "b"}, "abc", []),
    ({"type": "string", "minLength": 2}, "a", [f'Invalid value: "a": {IN_BODY} should be at least 2 chars long']),
    ({"type": "string", "maxLength": 2}, "äöü", ["Too long: may not be more than 2 bytes"]),
    ({"type": "integer", "minimum": 1}, 0, [f"Invalid value: 0: {IN_BODY} should be greater than or equal to 1"]),
    ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 1, [f"Invalid value: 1: {IN_BODY} should be greater than 1"]),
    ({"type": "number", "maximum": 1.5}, 2, [f"Invalid value: 2: {IN_BODY} should be less than or equal to 1.5"]),
    ({"type": "number", "maximum": 1.5, "exclusiveMaximum": True}, 1.5, [f"Invalid value: 1.5: {IN_BODY} should be less than 1.5"]),
    ({"type": "number", "multipleOf": 0.1}, 0.3, []),
    ({"type": "integer", "multipleOf": 5}, 7, [f"Invalid value: 7: {IN_BODY} should be a multiple of 5"]),
    ({"type": "number", "multipleOf": 1e-300}, 1e300, []),
    ({"type": "number", "multipleOf": 2}, 10**400, []),
    ({"type": "number", "multipleOf": 0}, 1, []),
    ({"type": "array", "items": STRING, "minItems": 1}, [], [f"Invalid value: 0: {IN_BODY} should have at least 1 items"]),
    ({"type": "array", "items": STRING, "maxItems": 1}, ["a", "b"], ["Too many: 2: must have at most 1 items"]),
    ({"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}, ["a", "a"], ['Duplicate value: "a"']),
    ({"type": "array", "items": STRING}, [1], ['Invalid value: "integer": x[0] in body must be of type string: "integer"']),
    ({"type": "object", "maxProperties": 1}, {"a": 1, "b": 2}, ["Too many: 2: must have at most 1 items"]),
    ({"type": "object", "minProperties": 1}, {}, [f"Invalid value: {{}}: {IN_BODY} should have at least 1 properties"]),
    ({"type": "object", "required": ["a"]}, {}, ["Required value"]),
    ({"type": "object", "additionalProperties": INTEGER}, {"a": "b"}, ['Invalid value: "string": x.a in body must be of type integer: "string"']),
    ({"anyOf": [{"minimum": 3}, {"maximum": 1}]}, 2, [
        'Invalid value: "": "x" must validate at least one schema (anyOf)',
        f"Invalid value: 2: {IN_BODY} should be greater than or equal to 3",
    ]),
    ({"oneOf": [{"minimum": 1}, {"maximum": 3}]}, 2, ['Invalid value: "": "x" must validate one and only one schema (oneOf). Found 2 valid alternatives']),
    ({"allOf": [{"minimum": 3}, {"maximum": 3}]}, 2, [
        f"Invalid value: 2: {IN_BODY} should be greater than or equal to 3",
        'Invalid value: "": "x" must validate all the schemas (allOf)',
    ]),
    ({"not": {"minimum": 1}}, 2, ['Invalid value: "": "x" must not validate the schema (not)']),
    ({"not": {"minimum": 1}}, 0, []),
    ({"type": "object", "x-kubernetes-embedded-resource": True}, {"kind": "A"}, ["Required value: must not be empty"]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "expected"), ROWS)
def test_values(schema: Json, value: Any, expected: list[str]) -> None:
    assert [cause.message for cause in Validator(parsed(schema)).causes(value, "x")] == expected


@pytest.mark.parametrize(
    ("schema_format", "good", "bad"),
    [
        ("date-time", "2024-05-01T12:00:00Z", "2024-05-01"),
        ("date", "2024-05-01", "yesterday"),
        ("ipv4", "192.0.2.1", "::1"),
        ("ipv6", "::1", "192.0.2.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("byte", "YQ==", "a"),
        ("duration", "1h30m", "long"),
        ("hostname", "a.example", "a_b!"),
        ("uuid", "9f1b3c5e-0d2a-4f6b-8c7d-1e2f3a4b5c6d", "9f1b"),
        ("uri", "https://a.example/", "a b"),
    ],
)
def test_formats(schema_format: str, good: str, bad: str) -> None:
    schema = parsed({"type": "string", "format": schema_format})
    assert list(Validator(schema).causes(good, "x")) == []
    (cause,) = Validator(schema).causes(bad, "x")
    assert (cause.reason, cause.field) == ("FieldValueTypeInvalid", "x")
    assert cause.detail == f'x in body must be of type {schema_format}: "{bad}"'


def test_unknown_formats_say_nothing() -> None:
    assert list(Validator(parsed({"type": "string", "format": "color"})).causes("any", "x")) == []


def test_paths_of_a_whole_object() -> None:
    obj = {"spec": {"replicas": 101, "rules": [{"name": "a"}, {"name": "a"}, {}], "free": {"a": None}}}
    found = [(cause.field, cause.reason) for cause in Validator(parsed(SCHEMA)).causes(obj)]
    assert found == [
        ("spec.color", "FieldValueRequired"),
        ("spec.replicas", "FieldValueInvalid"),
        ("spec.rules[2].name", "FieldValueRequired"),
        ("spec.rules[1]", "FieldValueDuplicate"),
    ]


def test_at_most_a_hundred_violations_are_named() -> None:
    rows = parsed({"type": "array", "items": {"anyOf": [{"type": "array", "items": STRING}, {"type": "string"}]}})
    assert len(Validator(rows).causes([1] * 1000)) == CAUSES_MAX
    assert len(Validator(rows).causes([[1] * 1000, "a", 1])) == 4, "of the alternative that fits best"


@pytest.mark.parametrize("word", ["anyOf", "allOf"])
def test_the_work_for_alternatives_is_limited(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setattr(validation, "CHECKS_MAX", 5000)
    nested: Json = {"minLength": 1}
    for _ in range(3):
        nested = {word: [nested] * 8}
    schema = parsed({"type": "array", "items": nested})
    assert Validator(schema).causes([1]) == Validator(schema).causes([]) == []
    with pytest.raises(StatusError, match="limit is 5000 checks of allOf, anyOf, oneOf and not"):
        Validator(schema).causes([1] * 9)


HOSTILE = ['"+__import__("os").abort()+"', "{value}", "a\n    raise SystemExit", "\\", "", "__class__", "\U0001f600"]


def test_names_and_values_of_schemas_are_data() -> None:
    fields = {name: {"type": "string", "enum": [name], "default": name} for name in HOSTILE}
    schema = parsed({"type": "object", "properties": fields, "required": HOSTILE})
    assert defaulted(schema, {}) == {name: name for name in HOSTILE}
    assert Validator(schema).causes(defaulted(schema, {})) == []
    found = Validator(schema).causes({HOSTILE[0]: "x"})
    assert (found[0].field, len(found)) == (HOSTILE[1], len(HOSTILE))


def test_twenty_thousand_fields_and_a_deep_schema() -> None:
    schema = parsed(
        {"type": "object", "properties": {f"f{n}": {"type": "string", "default": "x"} for n in range(20_000)}}
    )
    assert Validator(schema).causes(defaulted(schema, {"f7": 1}))[0].field == "f7"
    deep: Json = STRING
    value: Any = ["a"]
    for _ in range(DEPTH_MAX - 2):
        deep, value = {"type": "array", "items": deep}, [value]
    (cause,) = Validator(parsed(deep)).causes(value)
    assert cause.field == "[0]" * (DEPTH_MAX - 2)


def test_open_objects_have_no_unknown_fields() -> None:
    fields: Json = {name: {"type": "object", "properties": {"b": STRING}} for name in ("closed", "open")}
    fields["open"] |= {"x-kubernetes-preserve-unknown-fields": True}
    kind = Kind("example.com", "v1", "Widget", "widgets", schema=parsed({"type": "object", "properties": fields}))
    assert [path for path, _ in mistakes(kind, {name: {"b": "", "c": 1} for name in fields})] == ["closed.c"]


def test_pruning_and_defaults() -> None:
    obj = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "one"},
        "other": 1,
        "spec": {
            "color": None,
            "x": 1,
            "free": {"y": {"z": 1}},
            "labels": {"a": "b"},
            "rules": [{"name": "a", "w": 1}],
        },
    }
    kept = pruned(parsed(SCHEMA), obj, is_resource=True)
    assert kept["metadata"] == {"name": "one"}
    assert "other" not in kept
    assert defaulted(parsed(SCHEMA), kept)["spec"] == {
        "free": {"y": {"z": 1}},
        "labels": {"a": "b"},
        "rules": [{"name": "a", "value": "x"}],
        "replicas": 1,
    }


def test_nulls_of_lists_and_maps_become_defaults() -> None:
    text = {"type": "string", "default": "x"}
    fields: Json = {
        "rows": {"type": "array", "items": text},
        "values": {"type": "object", "additionalProperties": text},
    }
    fields |= {"none": {"type": "string", "nullable": True, "default": None}}
    schema = parsed({"type": "object", "properties": fields})
    found = defaulted(schema, {"rows": [None, "a"], "values": {"a": None, "b": "c"}})
    assert found == {"rows": ["x", "a"], "values": {"a": "x", "b": "c"}}


def test_a_default_has_the_defaults_below_it() -> None:
    below = {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 1}}}
    assert defaulted(parsed({"type": "object", "properties": {"a": below}}), {}) == {"a": {"b": 1}}


def test_embedded_resources_keep_their_metadata() -> None:
    schema = parsed({"type": "object", "properties": {"t": {"type": "object", "x-kubernetes-embedded-resource": True}}})
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}
    kept = {name: template[name] for name in ("apiVersion", "kind", "metadata")}
    assert pruned(schema, {"t": template}) == {"t": kept}
