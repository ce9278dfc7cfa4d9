"""Sets of field paths behave as sets: their trees and plain sets of paths agree."""

import json
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import SERVICE, Json
from kdns.controlplane.fieldmanager.apply import apply
from kdns.controlplane.fieldmanager.field_sets import (
    SELF,
    FieldSet,
    difference,
    intersection,
    paths,
    sorted_elements,
    union,
)
from kdns.controlplane.fieldmanager.managed_fields import Writer, entries_of_changed, identity, managed_content
from kdns.controlplane.fieldmanager.ownership import all_paths, compare, configured_paths, merge, without
from kdns.controlplane.schema.schema import object_of
from kdns.controlplane.schema.serialization import serialized

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"port":80}', 'v:"x"'])


def tree(found: list[tuple[tuple[str, ...], bool]]) -> FieldSet:
    result: FieldSet = {}
    for path, _ in found:
        one: FieldSet = {}
        for element in reversed(path):
            one = {element: one}
        result = union(result, one)
    return result


FIELDS = st.lists(st.tuples(st.lists(ELEMENTS, min_size=1, max_size=3).map(tuple), st.booleans()), max_size=6).map(tree)


def plain(fields: FieldSet) -> set[tuple[str, ...]]:
    return set(paths(fields))


@given(FIELDS, FIELDS)
def test_trees_are_sets(one: FieldSet, other: FieldSet) -> None:
    mine, theirs = plain(one), plain(other)
    assert plain(union(one, other)) == mine | theirs
    assert plain(difference(one, other)) == mine - theirs
    assert plain(intersection(one, other)) == mine & theirs
    for result in (union(one, other), difference(one, other), intersection(one, other)):
        assert _is_tight(result)
        assert sorted_elements(result) == result


def _is_tight(fields: FieldSet, *, nested: bool = False) -> bool:
    """Whether every element is a path or has one below it: a path is `{}`, or has "." beside further elements."""
    if nested and set(fields) == {SELF}:
        return False
    return all(_is_tight(below, nested=True) for element, below in fields.items() if element != SELF)


PORTS = st.lists(
    st.fixed_dictionaries(
        {"port": st.integers(1, 4)},
        optional={"name": st.sampled_from("xy"), "protocol": st.sampled_from(["TCP", "UDP"])},
    ),
    max_size=4,
    unique_by=lambda port: (port["port"], port.get("protocol", "TCP")),
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")),
                "finalizers": st.lists(st.sampled_from(["x/a", "x/b"]), unique=True),
            },
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "ports": PORTS,
                "selector": st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")),
                "type": st.sampled_from(["ClusterIP", "NodePort"]),
            },
        ),
    },
)
STRUCTURE = object_of(SERVICE)


@given(OBJECTS, OBJECTS)
def test_changes_lead_from_one_object_to_the_other(old: Json, new: Json) -> None:
    (written, removed), (back, added) = compare(STRUCTURE, old, new), compare(STRUCTURE, new, old)
    assert plain(added) <= plain(written) <= plain(all_paths(STRUCTURE, new))
    assert plain(removed) <= plain(back) <= plain(all_paths(STRUCTURE, old))
    assert plain(written) - plain(added) == plain(back) - plain(removed), "what is in both and differs"
    assert (not written and not removed) == (_text(old) == _text(new))


def _text(value: Any) -> Any:
    """The object as text, in which an empty list and an absent list differ, as they do for a comparison."""
    return json.dumps(_sorted(value), sort_keys=True)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(inner) for name, inner in value.items()}
    return sorted(json.dumps(each, sort_keys=True) for each in value) if isinstance(value, list) else value


@given(OBJECTS, OBJECTS)
def test_a_merge_contains_the_configuration(live: Json, config: Json) -> None:
    result = merge(STRUCTURE, live, config)
    assert merge(STRUCTURE, result, config) == result, "a second time changes nothing"
    claimed = plain(configured_paths(STRUCTURE, config))
    assert claimed <= plain(all_paths(STRUCTURE, result))
    _, removed = compare(STRUCTURE, live, result)
    assert not plain(removed), "merging takes nothing away"


@given(OBJECTS)
def test_nothing_remains_without_all_paths(obj: Json) -> None:
    everything = all_paths(STRUCTURE, obj)
    assert not without(STRUCTURE, obj, everything, {})
    assert (without(STRUCTURE, obj, {}, {}) or {}) == obj
    assert (without(STRUCTURE, obj, {}, everything) or {}) == obj


WRITES = st.lists(st.tuples(st.sampled_from(["a", "b", "edit"]), OBJECTS), min_size=1, max_size=6)


@example([("a", {"metadata": {"labels": {"a": "x"}}}), ("a", {"metadata": {"labels": {}}})])
@example([("a", {"metadata": {"finalizers": ["x/a"]}}), ("a", {"metadata": {"labels": {}, "finalizers": []}})])
@example([("a", {"spec": {}}), ("a", {"metadata": {"labels": {}}, "spec": {"ports": []}})])
@given(WRITES)
def test_applied_objects_hold_what_their_managers_configure(writes: list[tuple[str, Json]]) -> None:
    """Two appliers with force and an editor: each configuration is present, and every field has a manager."""
    live: Json | None = None
    for number, (name, sent) in enumerate(writes):
        typed = {"apiVersion": "v1", "kind": "Service", **sent}
        typed["metadata"] = {"name": "x", **sent.get("metadata", {})}
        writer = Writer(name, time=f"{number}")
        if name != "edit":
            live = apply(SERVICE, live, typed, writer, force=True)
            if live["metadata"]["managedFields"]:  # without entries, the next apply gives all fields a manager
                again = apply(SERVICE, live, typed, writer, force=False)
                # an empty list has no owner, so what it alone keeps is removed, and is back after a second time
                assert _filled(managed_content(SERVICE, again)) == _filled(managed_content(SERVICE, live)), (
                    "it is a no-op"
                )
                assert again["metadata"]["managedFields"] == live["metadata"]["managedFields"]
            assert plain(configured_paths(STRUCTURE, managed_content(SERVICE, typed))) <= plain(
                all_paths(STRUCTURE, managed_content(SERVICE, live))
            )
            assert not compare(
                STRUCTURE, managed_content(SERVICE, merge(STRUCTURE, live, typed)), managed_content(SERVICE, live)
            )[0]
        elif live is not None:
            entries = entries_of_changed(SERVICE, live, typed, writer)
            live = {**typed, "metadata": {**typed["metadata"], "managedFields": entries}}
        _check_entries(live)


def _filled(value: Any) -> Any:
    """The value without empty maps and lists, of which an edit may leave some without a manager."""
    if isinstance(value, dict):
        return {name: kept for name, inner in value.items() if (kept := _filled(inner)) not in ({}, [], None)}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def _check_entries(live: Json | None) -> None:
    entries = (live or {"metadata": {}})["metadata"].get("managedFields") or []
    assert len({identity(entry) for entry in entries}) == len(entries)
    forms = (live or {}, serialized(SERVICE, live or {}))  # as it was applied, and with the {} that Go writes
    there = set[tuple[str, ...]]().union(
        *(plain(all_paths(STRUCTURE, managed_content(SERVICE, form))) for form in forms)
    )
    managed: set[tuple[str, ...]] = set()
    for entry in entries:
        assert entry["fieldsV1"]
        assert _is_tight(entry["fieldsV1"])
        managed |= plain(entry["fieldsV1"])
    assert managed <= there, "nobody manages what is not there"
    if not any(entry["operation"] == "Update" for entry in entries) and entries:
        leaves = plain(configured_paths(STRUCTURE, managed_content(SERVICE, _filled(live))))
        assert {path for path in leaves if path not in managed} <= EMPTY, "what nobody applies any more is gone"


EMPTY = {("f:spec",), ("f:metadata",)}


NAMES = [
    "spec",
    "ports",
    "port",
    "protocol",
    "metadata",
    "labels",
    "finalizers",
    "managedFields",
    "selector",
    "f:a",
    ".",
    "k:{",
    "operation",
    "apiVersion",
    "fieldsType",
    "fieldsV1",
    "type",
    "status",
    "ownerReferences",
    "uid",
]
TEXTS = st.sampled_from(["", "x", "f:a", "TCP", "Apply", "v1", "FieldsV1"])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 99) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "x"]), JUNK), st.booleans())
def test_any_configuration_is_applied_or_refused(junk: Json, is_there: bool) -> None:
    live = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "x"}, "spec": {"ports": [{"port": 1}]}}
    config = {**junk, "apiVersion": "v1", "kind": "Service"}
    with suppress(StatusError):
        made = apply(SERVICE, live if is_there else None, config, Writer("a"), force=False)
        assert isinstance(made["metadata"]["managedFields"], list)
