"""Sets of field paths behave as sets: their trees and plain sets of paths agree."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kdns.controlplane.apply import applied
from kdns.controlplane.comparing import all_paths, applied_paths, changes
from kdns.controlplane.fieldsets import (
    SELF,
    Fields,
    difference,
    in_order,
    intersection,
    is_fields,
    outside,
    paths,
    union,
)
from kdns.controlplane.kinds import SERVICE, Json
from kdns.controlplane.managed import Writer, content, identity, updated
from kdns.controlplane.merging import merged, without
from kdns.controlplane.shapes import shape_of
from kdns.controlplane.status import StatusError

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"port":80}', 'v:"x"'])


def tree(found: list[tuple[tuple[str, ...], bool]]) -> Fields:
    result: Fields = {}
    for path, _ in found:
        one: Fields = {}
        for element in reversed(path):
            one = {element: one}
        result = union(result, one)
    return result


FIELDS = st.lists(st.tuples(st.lists(ELEMENTS, min_size=1, max_size=3).map(tuple), st.booleans()), max_size=6).map(tree)


def plain(fields: Fields) -> set[tuple[str, ...]]:
    return set(paths(fields))


@given(FIELDS, FIELDS)
def test_trees_are_sets(one: Fields, other: Fields) -> None:
    mine, theirs = plain(one), plain(other)
    assert plain(union(one, other)) == mine | theirs
    assert plain(difference(one, other)) == mine - theirs
    assert plain(intersection(one, other)) == mine & theirs
    above = {path for path in mine if any(path[: len(each)] == each for each in theirs)}
    assert plain(outside(one, other)) == mine - above
    for result in (union(one, other), difference(one, other), intersection(one, other), outside(one, other)):
        assert is_fields(result)
        assert _is_tight(result)
        assert in_order(result) == result


def _is_tight(fields: Fields, *, nested: bool = False) -> bool:
    """No element stands for nothing: a path is `{}`, or has "." beside what is below it."""
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
SHAPE = shape_of(SERVICE)


@given(OBJECTS, OBJECTS)
def test_changes_lead_from_one_object_to_the_other(old: Json, new: Json) -> None:
    found, back = changes(SHAPE, old, new), changes(SHAPE, new, old)
    assert found.removed == back.added
    assert found.modified == back.modified
    assert (not found.written and not found.removed) == (_said(old) == _said(new))
    assert plain(found.added) <= plain(all_paths(SHAPE, new))
    assert plain(found.removed) <= plain(all_paths(SHAPE, old))


def _said(value: Any) -> Any:
    """The object as text, so that an empty list and no list differ as they do for a comparison."""
    return json.dumps(_sorted(value), sort_keys=True)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(inner) for name, inner in value.items()}
    return sorted(json.dumps(each, sort_keys=True) for each in value) if isinstance(value, list) else value


@given(OBJECTS, OBJECTS)
def test_what_is_merged_is_there(live: Json, config: Json) -> None:
    result = merged(SHAPE, live, config)
    assert merged(SHAPE, result, config) == result, "a second time changes nothing"
    claimed = plain(applied_paths(SHAPE, config))
    assert claimed <= plain(all_paths(SHAPE, result))
    taken_away = changes(SHAPE, live, result).removed
    assert not plain(taken_away), "merging takes nothing away"


@given(OBJECTS)
def test_without_its_paths_nothing_is_left(obj: Json) -> None:
    assert not without(SHAPE, obj, all_paths(SHAPE, obj))
    assert (without(SHAPE, obj, {}) or {}) == obj


WRITES = st.lists(st.tuples(st.sampled_from(["a", "b", "edit"]), OBJECTS), min_size=1, max_size=6)


@example([("a", {"metadata": {"labels": {"a": "x"}}}), ("a", {"metadata": {"labels": {}}})])
@given(WRITES)
def test_applied_objects_hold_what_their_managers_say(writes: list[tuple[str, Json]]) -> None:
    """Two appliers, by force, and one who edits: each configuration is there, and nothing but what someone manages."""
    live: Json | None = None
    for number, (name, sent) in enumerate(writes):
        typed = {"apiVersion": "v1", "kind": "Service", **sent}
        typed["metadata"] = {"name": "x", **sent.get("metadata", {})}
        writer = Writer(name, time=f"{number}")
        if name != "edit":
            live = applied(SERVICE, live, typed, writer, force=True)
            if live["metadata"]["managedFields"]:  # without any, what is there gets a manager at the next apply
                again = applied(SERVICE, live, typed, writer, force=False)
                assert again == live, "a second time changes nothing and meets nobody"
            assert plain(applied_paths(SHAPE, content(typed))) <= plain(all_paths(SHAPE, content(live)))
            assert not changes(SHAPE, content(merged(SHAPE, live, typed)), content(live)).written
        elif live is not None:
            entries = updated(SERVICE, live, typed, writer)
            live = {**typed, "metadata": {**typed["metadata"], "managedFields": entries}}
        _check_entries(live)


def _filled(value: Any) -> Any:
    """The value without empty maps and lists: an edit may leave some that nobody manages."""
    if isinstance(value, dict):
        return {name: kept for name, inner in value.items() if (kept := _filled(inner)) not in ({}, [], None)}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def _check_entries(live: Json | None) -> None:
    entries = (live or {"metadata": {}})["metadata"].get("managedFields") or []
    assert len({identity(entry) for entry in entries}) == len(entries)
    there = plain(all_paths(SHAPE, content(live or {})))
    managed: set[tuple[str, ...]] = set()
    for entry in entries:
        assert entry["fieldsV1"]
        assert _is_tight(entry["fieldsV1"])
        managed |= plain(entry["fieldsV1"])
    assert managed <= there, "nobody manages what is not there"
    if not any(entry["operation"] == "Update" for entry in entries) and entries:
        leaves = plain(applied_paths(SHAPE, content(_filled(live))))
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
        made = applied(SERVICE, live if is_there else None, config, Writer("a"), force=False)
        assert isinstance(made["metadata"]["managedFields"], list)
