import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from list_pages import decode_list

from kdns.cluster.objects import EndpointSlice, Key, Namespace, Object, Pod, Service
from kdns.cluster.watch import (
    DECODE_ERRORS,
    OBJECT_MAX_BYTES,
    RESOURCES,
    Lines,
    backoff_s,
    decode_event,
    ends_initial_events,
    is_older,
    raw_key,
    resource_version_of,
)


def a_list(
    *items: Any, of: type[Object] = Service, version: str = "7", more: str = "", types: dict[str, str] | None = None
) -> bytes:
    listed = {"kind": f"{of.__name__}List", "apiVersion": RESOURCES[of].api_version} | (types or {})
    metadata = {"resourceVersion": version, "continue": more}
    return json.dumps(listed | {"metadata": metadata, "items": list(items)}).encode()


def named(name: Any, namespace: str = "n", **rest: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, **rest}


@pytest.mark.parametrize("kind", RESOURCES)
def test_each_kind_is_listed(kind: type[Object]) -> None:
    page = decode_list(RESOURCES[kind], a_list(named("a"), named("b"), of=kind, more="next"))
    assert [type(obj) for obj in page.objects] == [kind, kind]
    assert [obj.key[1] for obj in page.objects] == ["a", "b"]
    assert (page.resource_version, page.continue_token, page.failures) == ("7", "next", ())


@pytest.mark.parametrize(
    ("kind", "path", "rule"),
    [
        (Namespace, "/api/v1/namespaces", 'apiGroups: [""], resources: ["namespaces"]'),
        (Service, "/api/v1/services", 'apiGroups: [""], resources: ["services"]'),
        (Pod, "/api/v1/pods", 'apiGroups: [""], resources: ["pods"]'),
        (
            EndpointSlice,
            "/apis/discovery.k8s.io/v1/endpointslices",
            'apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"]',
        ),
    ],
)
def test_where_each_kind_is_found(kind: type[Object], path: str, rule: str) -> None:
    assert RESOURCES[kind].path == path
    assert RESOURCES[kind].rbac_rule == f'{rule}, verbs: ["list", "watch"]'


def test_a_null_list_is_empty() -> None:
    body = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":null}'
    assert decode_list(RESOURCES[Pod], body).objects == ()


@pytest.mark.parametrize(
    ("types", "found"),
    [
        ({"kind": "ConfigMapList"}, "ConfigMapList of v1"),
        (
            {"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1"},
            "EndpointSliceList of discovery.k8s.io/v1",
        ),
        ({"kind": "Service"}, "Service of v1"),
        ({"kind": "Status"}, "Status of v1"),
        ({"apiVersion": "v2"}, "ServiceList of v2"),
        ({"kind": "", "apiVersion": ""}, r"\(none\) of \(no apiVersion\)"),
    ],
)
@pytest.mark.parametrize("items", [(), (named("a"),), (named("a", spec=5),)])
def test_another_type_is_an_error_and_never_an_empty_list(items: Any, types: dict[str, str], found: str) -> None:
    with pytest.raises(msgspec.DecodeError, match=f"expected ServiceList of v1, got kind {found}"):
        decode_list(RESOURCES[Service], a_list(*items, types=types))


@pytest.mark.parametrize("what", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])
@pytest.mark.parametrize(
    "obj", [{"kind": "Pod", "apiVersion": "v1"}, {"kind": "Service", "apiVersion": "v2"}, {}, [], {"kind": "Status"}]
)
def test_so_is_an_event_about_another_type(what: str, obj: Any) -> None:
    event = {"type": what, "object": obj | named("a") if isinstance(obj, dict) else obj}
    with pytest.raises(DECODE_ERRORS):
        decode_event(RESOURCES[Service], json.dumps(event).encode())


@pytest.mark.parametrize(
    ("item", "key", "reason"),
    [
        (named("b", spec={"ports": 3}), ("n", "b"), "$.spec.ports"),
        (named("b", spec={"ports": [{"port": "http"}]}), ("n", "b"), "$.spec.ports[0].port"),
        (named(5), None, "$.metadata.name"),
        ({"kind": "Service"}, None, "metadata"),
        (5, None, "Expected `object`"),
    ],
)
def test_one_unreadable_object_does_not_take_the_others_with_it(item: Any, key: Key | None, reason: str) -> None:
    page = decode_list(RESOURCES[Service], a_list(named("a"), item, named("c")))
    assert [obj.key for obj in page.objects] == [("n", "a"), ("n", "c")]
    assert [failure.key for failure in page.failures] == [key]
    assert reason in page.failures[0].reason
    assert page.resource_version == "7"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"{}", b'{"items":[]}', b"\xff", b'{"metadata":{},"items":5}']
)
def test_what_is_no_list_is_unreadable(body: bytes) -> None:
    with pytest.raises(DECODE_ERRORS):
        decode_list(RESOURCES[Service], body)


@given(
    st.binary(max_size=64)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for read in (lambda: decode_list(RESOURCES[Service], body), lambda: decode_event(RESOURCES[Service], body)):
        with contextlib.suppress(*DECODE_ERRORS):
            read()


@pytest.mark.parametrize(
    ("obj", "key", "version"),
    [
        (b'{"metadata":{"name":"a","namespace":"n","resourceVersion":"12"}}', ("n", "a"), "12"),
        (b'{"metadata":{"name":"a"}}', ("", "a"), ""),
        (b'{"metadata":{"resourceVersion":"12"}}', None, "12"),
        (b'{"metadata":{}}', None, ""),
        (b"{}", None, ""),
        (b"5", None, ""),
    ],
)
def test_what_an_event_is_about(obj: bytes, key: Key | None, version: str) -> None:
    raw = msgspec.Raw(obj)
    assert (raw_key(raw), resource_version_of(raw)) == (key, version)


@pytest.mark.parametrize("kind", RESOURCES)
@pytest.mark.parametrize("what", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")], ids=["as Go writes it", "with spaces"])
def test_each_event_is_read(kind: type[Object], what: str, separators: tuple[str, str]) -> None:
    types = {"kind": kind.__name__, "apiVersion": RESOURCES[kind].api_version}
    text = json.dumps({"type": what, "object": types | named("a")}, separators=separators)
    event = decode_event(RESOURCES[kind], text.encode())
    assert (event.type, raw_key(event.object)) == (what, ("n", "a"))
    assert RESOURCES[kind].decode(event.object).key[1] == "a"


@pytest.mark.parametrize(
    ("metadata", "ends"),
    [
        ({"annotations": {"k8s.io/initial-events-end": "true"}}, True),
        ({"annotations": {"k8s.io/initial-events-end": "false"}}, False),
        ({"annotations": {}}, False),
        ({"annotations": None}, False),
        ({"annotations": 5}, False),
        ({}, False),
    ],
)
def test_which_bookmark_ends_the_initial_events(metadata: dict[str, Any], ends: bool) -> None:
    assert ends_initial_events(msgspec.Raw(json.dumps({"metadata": metadata}).encode())) is ends


@pytest.mark.parametrize(
    ("known", "told", "back"),
    [
        ("10", "9", True),
        ("9", "10", False),
        ("9", "9", False),
        ("", "1", False),
        ("9", "", False),
        ("b", "a", False),
        ("1" + "0" * 5000, "9" * 5000, True),
        ("9" * 5000, "1" + "0" * 5000, False),
    ],
)
def test_revisions_that_went_back(known: str, told: str, back: bool) -> None:
    assert is_older(told, known) is back


@given(st.lists(st.binary(min_size=1, max_size=9).filter(lambda text: b"\n" not in text and text.strip())), st.data())
def test_lines_do_not_depend_on_the_chunks(texts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(text + b"\n" for text in texts) + b"half"
    lines, found = Lines(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += lines.feed(stream[:size])
        stream = stream[size:]
    assert found == texts


def test_empty_lines_say_nothing() -> None:
    assert Lines().feed(b"\n\r\n{}\n \n") == [b"{}"]


def test_an_endless_line_is_refused() -> None:
    lines, chunk = Lines(), bytes([65]) * (OBJECT_MAX_BYTES // 2)
    assert lines.feed(chunk) == lines.feed(chunk) == []
    with pytest.raises(msgspec.DecodeError, match="longer than"):
        lines.feed(b"A")


@pytest.mark.parametrize(
    ("failures", "most_s"), [(-1, 0), (0, 0), (1, 0.8), (2, 1.6), (3, 3.2), (6, 25.6), (7, 30), (8, 30), (10**9, 30)]
)
def test_waits_grow_and_are_spread_over_their_whole_range(failures: int, most_s: float) -> None:
    assert backoff_s(failures, 1.0) == pytest.approx(most_s)
    assert backoff_s(failures, 0.5) == pytest.approx(most_s / 2)
    assert backoff_s(failures, 0.0) == 0
