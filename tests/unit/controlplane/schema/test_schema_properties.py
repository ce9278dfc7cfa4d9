"""Properties: validation of any JSON raises nothing; objects that match the schema are valid and can be printed."""

from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from served_kinds import SERVED, table

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.schema.check import mistyped_fields, prune, unknown_fields
from kdns.controlplane.schema.schema import type_of
from kdns.controlplane.schema.serialization import is_compiled, serialized
from kdns.controlplane.schema.serialization import matching as matching_object
from kdns.controlplane.schema.types import SCALARS, Field, TypeRef, fields

SCALAR_VALUES: dict[str, SearchStrategy[object]] = {
    "string": st.sampled_from(["", "a", "Ready", "True"]),
    "bytes": st.just("YQ=="),
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "number": st.floats(-1e6, 1e6),
    "quantity": st.sampled_from(["1", "5Gi", "100m", 2]),
    "intorstr": st.one_of(st.integers(0, 65535), st.just("http")),
    "time": st.just("2024-05-01T12:00:00Z"),
    "microtime": st.just("2024-05-01T12:00:00.123456Z"),
    "fieldsv1": st.just({"f:spec": {}}),
    "rawextension": st.just({"spec": {}}),
    "strings": st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2),
}
assert SCALAR_VALUES.keys() == SCALARS
ANY_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["metadata", "spec", "status", "ports", "port", "endpoints", "x"]), inner),
    ),
    max_leaves=20,
)
KIND = st.sampled_from(SERVED)


ANY_OBJECT = st.dictionaries(st.sampled_from(["metadata", "spec", "status", "subsets", "x"]), ANY_JSON)
NONZERO_VALUES = SCALAR_VALUES | {
    "string": st.sampled_from(["a", "Ready", "True"]),
    "bool": st.just(True),
    "int32": st.integers(1, 2**31 - 1),
    "int64": st.integers(1, 2**63 - 1),
    "number": st.floats(1, 1e6),
    "quantity": st.sampled_from(["1", "5Gi", "100m"]),
}


@cache
def matching(type_name: TypeRef, least: int = 0) -> SearchStrategy[Json]:
    """Objects with some of a type's fields, each of its type; lists and maps have at least `least` entries.

    With a `least`, no value is false, 0 or "".
    """
    known = fields(type_name)
    names = st.lists(st.sampled_from(sorted(known)), unique=True, max_size=5) if known else st.just([])
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: _value(known[name], least) for name in chosen}))


def _value(field: Field, least: int) -> SearchStrategy[object]:
    scalars = NONZERO_VALUES if least else SCALAR_VALUES
    one = scalars[field.type_name] if field.type in scalars else matching(field.type, least)
    if field.list_of:
        return st.lists(one, min_size=least, max_size=2)
    return st.dictionaries(st.sampled_from(["a", "b/c"]), one, min_size=least, max_size=2) if field.map_of else one


MATCHING = KIND.flatmap(lambda kind: st.tuples(st.just(kind), matching(type_of(kind))))
NONZERO = KIND.flatmap(lambda kind: st.tuples(st.just(kind), matching(type_of(kind), 1)))
"""As MATCHING, without the values that omitempty drops: empty lists and maps, false, 0 and ""."""


@given(KIND, ANY_OBJECT)
def test_any_json_is_validated_and_pruning_leaves_no_unknown_field(kind: Kind, obj: Json) -> None:
    mistyped_fields(kind, obj)
    pruned = prune(kind, obj)
    assert unknown_fields(kind, pruned) == []
    assert prune(kind, pruned) == pruned
    assert (unknown_fields(kind, obj) == []) or pruned != obj


@given(MATCHING)
def test_matching_objects_have_no_errors(case: tuple[Kind, Json]) -> None:
    kind, obj = case
    assert unknown_fields(kind, obj) == []
    assert mistyped_fields(kind, obj) == []
    assert mistyped_fields(kind, prune(kind, obj)) == []


@given(NONZERO)
def test_pruning_keeps_nonzero_values(case: tuple[Kind, Json]) -> None:
    kind, obj = case
    assert prune(kind, obj) == obj


@given(MATCHING)
def test_matching_objects_can_be_printed(case: tuple[Kind, Json]) -> None:
    kind, obj = case
    printed = table(kind, [obj])
    assert len(printed["rows"][0]["cells"]) == len(printed["columnDefinitions"])
    assert all(isinstance(cell, str | int) for cell in printed["rows"][0]["cells"])


@given(MATCHING)
def test_compiled_types_and_the_walk_agree(case: tuple[Kind, Json]) -> None:
    kind, obj = case
    made = serialized(kind, obj)
    assert made == serialized(kind, prune(kind, obj))
    assert matching_object(kind, made) == (made if is_compiled(kind) else None)


@given(KIND, ANY_OBJECT)
def test_objects_that_match_have_no_errors(kind: Kind, obj: Json) -> None:
    errors = [*mistyped_fields(kind, obj), *unknown_fields(kind, obj)]
    assert errors == [] or matching_object(kind, obj) is None
