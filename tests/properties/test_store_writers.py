"""For any requests in any order: no lost update, no exception but StatusError."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from object_api import Api
from served_kinds import CATALOGUE

from kdns.cluster import selectors
from kdns.cluster.selectors import SelectorError
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import POD, SERVICE, Json
from kdns.controlplane.schema.schema import object_of
from kdns.controlplane.server.patch import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, patched
from kdns.controlplane.storage import field_selectors

WRITERS = 3


@given(turns=st.lists(st.integers(0, WRITERS - 1), max_size=60))
def test_no_update_is_lost(turns: list[int]) -> None:
    """Each writer reads a number and on its next turn writes the next one; only a current read may succeed."""
    api = Api()
    counter: Json = {"metadata": {"name": "c", "annotations": {"n": "0"}}, "spec": {"ports": [{"port": 80}]}}
    api.create(SERVICE, counter)
    held: dict[int, Json] = {}
    won = 0
    for writer in turns:
        obj = held.pop(writer, None)
        if obj is None:
            held[writer] = api.get(SERVICE, "c")
            continue
        obj["metadata"]["annotations"]["n"] = str(int(obj["metadata"]["annotations"]["n"]) + 1)
        try:
            api.update(SERVICE, "c", obj)
            won += 1
        except StatusError as error:
            assert error.code == 409, error  # noqa: PT017 - losing is allowed, other errors are not
    assert api.get(SERVICE, "c")["metadata"]["annotations"]["n"] == str(won)


scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["a", "merge", "replace", "delete", "name"])
names = st.sampled_from(
    ["spec", "ports", "port", "name", "metadata", "finalizers", "labels", "$patch", "$retainKeys", "containers",
     "$setElementOrder/ports", "$deleteFromPrimitiveList/finalizers", "$setElementOrder/finalizers", "volumes"]
)  # fmt: skip
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4))
objects = st.dictionaries(names, values, max_size=4)
pointers = st.lists(st.sampled_from(["spec", "ports", "0", "-", "1", "~1", "name", ""]), max_size=4).map("/".join)
operations = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": pointers},
        optional={"value": values, "from": pointers},
    ),
    max_size=3,
)


@given(
    original=objects,
    patch=values | operations,
    patch_type=st.sampled_from([JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH]),
)
def test_any_patch_gives_an_object_or_a_status(original: Json, patch: Any, patch_type: str) -> None:
    sent = copy.deepcopy(patch)
    try:
        result = patched(original, patch_type, patch, object_of(SERVICE))
    except StatusError:
        pass
    else:
        assert isinstance(result, dict)
    assert patch == sent, "the patch itself is not changed"


@given(before=objects, after=objects)
def test_a_merge_patch_twice_is_once(before: Json, after: Json) -> None:
    once = patched(copy.deepcopy(before), MERGE_PATCH, after, None)
    assert patched(copy.deepcopy(once), MERGE_PATCH, after, None) == once


@given(text=st.text(alphabet="ab=!,() in<>notin/.1-\\", max_size=30))
def test_any_text_is_a_selector_or_an_error_that_says_why(text: str) -> None:
    try:
        selectors.parse(text).matches({"a": "b"})
    except SelectorError as error:
        assert error.reason  # noqa: PT017 - either outcome is right
    try:
        field_selectors.parse(CATALOGUE[POD].field_labels, text).matches({})
    except StatusError as error:
        assert error.code == 400  # noqa: PT017 - either outcome is right
