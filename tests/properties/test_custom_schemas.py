"""Structural schemas and values: whatever a client sends gets causes, never an exception."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.apimachinery.structural import parsed
from kdns.controlplane.schema.custom.rules import rule_paths, violations
from kdns.controlplane.schema.custom.types import custom_type, defaulted, pruned
from kdns.controlplane.schema.custom.validation import Validator

NAMES = st.sampled_from(["a", "b", "name", "metadata", "apiVersion"])
ANY_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=12,
)
WORDS = st.sampled_from(
    (
        *("type", "items", "properties", "additionalProperties", "anyOf", "not", "default", "enum", "pattern"),
        *("required", "nullable", "minimum", "maxItems", "format", "uniqueItems", "$ref", "definitions"),
        *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-int-or-string"),
        "x-kubernetes-validations",
    )
)
ANY_SCHEMA = st.recursive(
    st.one_of(ANY_JSON, st.sampled_from(["object", "array", "string", "integer", "map", "set"])),
    lambda inner: st.one_of(
        st.dictionaries(WORDS, inner, max_size=4),
        st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)}),
        st.lists(inner, max_size=2),
    ),
    max_leaves=12,
)
SCALARS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean"])},
        optional={"enum": st.lists(ANY_JSON, max_size=2), "minimum": st.integers(-2, 2), "nullable": st.booleans()},
    ),
    st.just({"x-kubernetes-int-or-string": True}),
    st.just({"x-kubernetes-preserve-unknown-fields": True}),
)
SCHEMA = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)},
            optional={"required": st.lists(NAMES, max_size=2), "default": ANY_JSON},
        ),
        st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": inner}),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)}),
    ),
    max_leaves=8,
)


@given(st.dictionaries(WORDS, ANY_SCHEMA, max_size=5))
def test_any_schema_is_valid_or_has_causes(source: Json) -> None:
    if not violations(source, "s"):
        schema = parsed(source)
        assert schema.type == "object"
        assert custom_type(schema).fields.keys() >= {"metadata"}
        assert list(rule_paths(source)) == list(dict.fromkeys(rule_paths(source)))


@given(SCHEMA, ANY_JSON)
def test_any_value_is_valid_or_has_causes(source: Json, value: Any) -> None:
    schema = parsed(source)
    for cause in Validator(schema).causes(value, "x"):
        assert cause.message
        assert cause.reason.startswith("FieldValue")


@given(SCHEMA, ANY_JSON)
def test_pruning_and_defaults_do_not_change_their_results(source: Json, value: Any) -> None:
    schema = parsed(source)
    kept = pruned(schema, value)
    assert pruned(schema, kept) == kept
    filled = defaulted(schema, kept)
    assert defaulted(schema, filled) == filled
