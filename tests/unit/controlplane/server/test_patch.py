"""Tables of the three patches: before, patch, after."""

import time
from typing import Any

import pytest
from object_api import refused

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.schema.types import Field, Type
from kdns.controlplane.server.patch import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, patched, strategic_patched


def place(name: str = "", *fields: Field, **rules: Any) -> Field:
    return Field(name, Type("T", {field.name: field for field in fields}), **rules)


PORTS = place("ports", list_of=True, strategy=("merge",), merge_key="port")
SPEC = place("spec", PORTS, place("strategy", strategy=("retainKeys",)), place("whole", strategy=("replace",)))
SCHEMA = place("", SPEC, place("finalizers", list_of=True, strategy=("merge",)), place("atoms", list_of=True))


def spec(*ports: Json, **more: Any) -> Json:
    return {"spec": {"ports": list(ports), **more}}


HTTP: Json = {"port": 80, "name": "http"}
DNS: Json = {"port": 53, "name": "dns"}
TLS: Json = {"port": 443, "name": "tls"}


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        pytest.param({"a": 1}, {"b": {"c": 2, "d": None}}, {"a": 1, "b": {"c": 2}}, id="new map loses nulls"),
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="null deletes"),
        pytest.param({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": 1, "y": 3}}, id="maps merge"),
        pytest.param({"a": {"x": 1}}, {"a": {"$patch": "replace", "y": 3}}, {"a": {"y": 3}}, id="map replaced"),
        pytest.param({"a": {"x": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}, id="map emptied"),
        pytest.param({"atoms": [1, 2]}, {"atoms": [3]}, {"atoms": [3]}, id="list without strategy is replaced"),
        pytest.param({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["b", "a"]}, id="scalars merge"),
        pytest.param(
            {"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]},
            id="scalar dropped",
        ),
        pytest.param(
            spec(HTTP, DNS), spec({"port": 80, "name": "web"}), spec({"port": 80, "name": "web"}, DNS), id="merged"
        ),
        pytest.param(spec(HTTP), spec(TLS), spec(TLS, HTTP), id="element added before those only the server knows"),
        pytest.param(spec(HTTP, DNS), spec({"port": 80, "$patch": "delete"}), spec(DNS), id="element deleted"),
        pytest.param(spec(HTTP, DNS), spec({"$patch": "replace"}, TLS), spec(TLS), id="list replaced"),
        pytest.param(
            spec(HTTP, DNS), {"spec": {"$setElementOrder/ports": [{"port": 53}, {"port": 80}]}}, spec(DNS, HTTP),
            id="order alone",
        ),
        pytest.param(
            spec(HTTP, DNS),
            {"spec": {"$setElementOrder/ports": [{"port": 443}, {"port": 80}, {"port": 53}], "ports": [TLS]}},
            spec(TLS, HTTP, DNS),
            id="order with an addition",
        ),
        pytest.param(
            spec(strategy={"type": "A", "a": 1}), {"spec": {"strategy": {"$retainKeys": ["type"], "type": "B"}}},
            spec(strategy={"type": "B"}), id="retainKeys",
        ),
        pytest.param(spec(whole={"a": 1}), {"spec": {"whole": {"b": 2}}}, spec(whole={"b": 2}), id="strategy replace"),
        pytest.param(
            spec(DNS, {**DNS, "name": "dns-tcp"}, HTTP), spec({"port": 53, "name": "first"}),
            spec({"port": 53, "name": "first"}, {**DNS, "name": "dns-tcp"}, HTTP),
            id="of two elements with one key the first is meant",
        ),
        pytest.param({"finalizers": ["a", "b"]}, {"finalizers": ["b"]}, {"finalizers": ["a", "b"]}, id="scalar known"),
        pytest.param(spec(HTTP), {"spec": {"ports": None}}, {"spec": {}}, id="null deletes a list"),
    ],
)  # fmt: skip
def test_strategic_merge_patch(before: Json, patch: Json, after: Json) -> None:
    assert patched(before, STRATEGIC_MERGE_PATCH, patch, SCHEMA) == after


@pytest.mark.parametrize(
    ("patch_type", "patch", "code", "text"),
    [
        (STRATEGIC_MERGE_PATCH, spec({"name": "x"}), 500, "does not contain declared merge key: port"),
        (STRATEGIC_MERGE_PATCH, {"$patch": ["x"]}, 500, "$patch: expected replace, merge or delete, got a list"),
        (
            STRATEGIC_MERGE_PATCH,
            spec({"port": 80, "$patch": {}}),
            500,
            "expected replace, merge or delete, got an object",
        ),
        (STRATEGIC_MERGE_PATCH, {"spec": {"$retainKeys": [[]]}}, 400, "retainKeys"),
        (STRATEGIC_MERGE_PATCH, {"spec": {"$setElementOrder/ports": "x"}}, 400, "expected a list"),
        (STRATEGIC_MERGE_PATCH, {"$patch": "explode"}, 500, 'expected replace, merge or delete, got "explode"'),
        (STRATEGIC_MERGE_PATCH, {"spec": {"$retainKeys": ["a"], "b": 1}}, 400, "retainKeys"),
        (STRATEGIC_MERGE_PATCH, [], 400, "the patch: expected an object, got a list"),
        (MERGE_PATCH, "x", 400, 'the patch: expected an object, got "x"'),
        (MERGE_PATCH, None, 400, "the patch: expected an object, got null"),
        (JSON_PATCH, {}, 400, "the patch: expected a list of operations, got an object"),
        (JSON_PATCH, [True], 400, "the patch: operation 0: expected an object, got true"),
        (JSON_PATCH, [{"op": "replace", "path": "/nothing/deeper", "value": 1}], 422, "rejected our request"),
        (JSON_PATCH, [{"op": "replace", "path": "/spec/ports/7", "value": 1}], 422, "rejected our request"),
        (JSON_PATCH, [{"op": "test", "path": "/spec/ports/0/port", "value": 81}], 422, "rejected our request"),
        (JSON_PATCH, [{"op": "remove", "path": "/nothing"}], 422, "rejected our request"),
        (JSON_PATCH, [{"op": "add", "path": "spec", "value": 1}], 422, "rejected our request"),
        (JSON_PATCH, [{"op": "fly", "path": "/spec"}], 422, "rejected our request"),
        (JSON_PATCH, [{"op": "add", "path": "/spec/ports/0/port/deeper", "value": 1}], 422, "rejected our request"),
        (JSON_PATCH, [{"op": "replace", "path": "", "value": 1}], 422, "rejected our request"),
        (JSON_PATCH, [{"op": "test", "path": "/spec"}] * 10_001, 413, "too large: The allowed maximum"),
        ("application/apply-patch+yaml", {}, 415, "not supported"),
    ],
)
def test_refused_patches(patch_type: str, patch: Any, code: int, text: str) -> None:
    error = refused(code, text, patched, spec(dict(HTTP)), patch_type, patch, SCHEMA)
    assert code != 422 or error.details == {}, "why an operation fails is not told"


def test_json_patch() -> None:
    operations = [
        {"op": "test", "path": "/spec/ports/0/port", "value": 80},
        {"op": "add", "path": "/spec/ports/-", "value": DNS},
        {"op": "remove", "path": "/spec/type"},
        {"op": "replace", "path": "/metadata/labels/a~1b", "value": "2"},
        {"op": "replace", "path": "/metadata/labels/c~1d", "value": "added, as by Kubernetes"},
        {"op": "add", "path": "/metadata/generateName"},
    ]
    before = {**spec(HTTP, type="ClusterIP"), "metadata": {"labels": {"a/b": "1"}}}
    labels = {"a/b": "2", "c/d": "added, as by Kubernetes"}
    after = {**spec(HTTP, DNS), "metadata": {"labels": labels, "generateName": None}}
    assert patched(before, JSON_PATCH, operations, None) == after
    assert patched(dict(after), JSON_PATCH, None, None) == after


def test_copies_of_copies_are_bounded() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(18)]
    refused(422, "rejected our request", patched, {"a": {"text": "x" * 100}}, JSON_PATCH, doubling, None)
    few = patched({"a": {"text": "x"}}, JSON_PATCH, doubling[:2], None)
    assert few == {"a": {"text": "x", "0": {"text": "x"}, "1": {"text": "x", "0": {"text": "x"}}}}


def test_merge_patch_is_rfc_7396() -> None:
    before = {"title": "Goodbye!", "author": {"given": "John", "family": "Doe"}, "tags": ["example", "sample"]}
    patch = {
        "title": "Hello!",
        "phone": "1",
        "author": {"family": None},
        "tags": ["example"],
        "new": {"a": None, "b": 1},
    }
    after = {"title": "Hello!", "author": {"given": "John"}, "tags": ["example"], "phone": "1", "new": {"b": 1}}
    assert patched(before, MERGE_PATCH, patch, None) == after


def test_long_lists_merge_in_a_moment() -> None:
    count = 20_000
    original: Json = {"spec": {"ports": [{"port": port} for port in range(count)]}}
    ports = [{"port": port, "name": "x"} for port in range(count // 2, count)]
    ports += [{"port": port, "$patch": "delete"} for port in range(count // 4)]
    order = [{"port": port} for port in reversed(range(count))]
    began_s = time.process_time()
    result = strategic_patched(original, {"spec": {"ports": ports, "$setElementOrder/ports": order}}, SCHEMA)
    assert time.process_time() - began_s < 5, "time grows with the length, not with its square"
    merged = result["spec"]["ports"]
    assert [port["port"] for port in merged] == list(reversed(range(count // 4, count)))
    assert sum("name" in port for port in merged) == count // 2
