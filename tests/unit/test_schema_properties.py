"""Properties of the checks: any JSON is judged, never an exception; what fits the schema passes and can be printed."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kdns.controlplane.kinds import SERVED, Json, Kind
from kdns.controlplane.schema import fields, type_of
from kdns.controlplane.schema_check import prune, type_errors, unknown_fields
from kdns.controlplane.schema_text import Field, TypeName
from kdns.controlplane.tables import table

SCALAR_VALUES: dict[str, SearchStrategy[object]] = {
    "string": st.sampled_from(["", "a", "Ready", "True"]),
    "bytes": st.just("YQ=="),
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "quantity": st.sampled_from(["1", "5Gi", "100m", 2]),
    "intorstr": st.one_of(st.integers(0, 65535), st.just("http")),
    "time": st.just("2024-05-01T12:00:00Z"),
    "microtime": st.just("2024-05-01T12:00:00.123456Z"),
    "json": st.just({"f:spec": {}}),
}
ANY_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["metadata", "spec", "status", "ports", "port", "endpoints", "x"]), inner),
    ),
    max_leaves=20,
)
KIND = st.sampled_from(SERVED)


SAYING_VALUES = SCALAR_VALUES | {
    "string": st.sampled_from(["a", "Ready", "True"]),
    "bool": st.just(True),
    "int32": st.integers(1, 2**31 - 1),
    "int64": st.integers(1, 2**63 - 1),
}


@cache
def fitting(type_name: TypeName, least: int = 0) -> SearchStrategy[Json]:
    """Objects with some of a type's fields, each of its right type; `least` entries in each list and map.

    With a `least`, nothing is false, 0 or "" either.
    """
    known = fields(type_name)
    names = st.lists(st.sampled_from(sorted(known)), unique=True, max_size=5) if known else st.just([])
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: _value(known[name], least) for name in chosen}))


def _value(field: Field, least: int) -> SearchStrategy[object]:
    scalars = SAYING_VALUES if least else SCALAR_VALUES
    one = scalars[field.type] if field.type in scalars else fitting(field.type, least)
    if field.list_of:
        return st.lists(one, min_size=least, max_size=2)
    return st.dictionaries(st.sampled_from(["a", "b/c"]), one, min_size=least, max_size=2) if field.map_of else one


FITTING = KIND.flatmap(lambda kind: st.tuples(st.just(kind), fitting(type_of(kind))))
SAYING = KIND.flatmap(lambda kind: st.tuples(st.just(kind), fitting(type_of(kind), 1)))
"""As FITTING, without what is there and says nothing: lists and maps without entries, false, 0 and ""."""


@given(KIND, st.dictionaries(st.sampled_from(["metadata", "spec", "status", "subsets", "x"]), ANY_JSON))
def test_any_json_is_judged_and_pruning_leaves_nothing_unknown(kind: Kind, obj: Json) -> None:
    type_errors(kind, obj)
    pruned = prune(kind, obj)
    assert unknown_fields(kind, pruned) == []
    assert prune(kind, pruned) == pruned
    assert (unknown_fields(kind, obj) == []) or pruned != obj


@given(FITTING)
def test_what_fits_is_known_and_fits(case: tuple[Kind, Json]) -> None:
    kind, obj = case
    assert unknown_fields(kind, obj) == []
    assert type_errors(kind, obj) == []
    assert type_errors(kind, prune(kind, obj)) == []


@given(SAYING)
def test_what_says_something_stays(case: tuple[Kind, Json]) -> None:
    kind, obj = case
    assert prune(kind, obj) == obj


@given(FITTING)
def test_what_fits_can_be_printed(case: tuple[Kind, Json]) -> None:
    kind, obj = case
    printed = table(kind, [obj], now_s=1_714_564_800.0)
    assert len(printed["rows"][0]["cells"]) == len(printed["columnDefinitions"])
    assert all(isinstance(cell, str | int) for cell in printed["rows"][0]["cells"])
