"""Objects as protobuf: encoded by the schema's numbers, decoded to the same; frames of watches; times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from served_kinds import CATALOGUE, SERVED

from kdns.controlplane.meta.errors import not_found
from kdns.controlplane.meta.kinds import CONFIG_MAP, SERVICE, Json
from kdns.controlplane.resources.scale import SCALE
from kdns.controlplane.schema.schema import fields, type_of
from kdns.controlplane.schema.types import SCALARS, Field, TypeName, name_of
from kdns.controlplane.server.protobuf import encoding, wire
from kdns.controlplane.server.protobuf.decoding import decoded
from kdns.controlplane.server.representation import Renderer, Representation, plain_representation
from kdns.controlplane.storage.listing import ListResult
from kdns.controlplane.storage.watch import WatchEvent, stored_object_of

PROTOBUF = Representation("application/vnd.kubernetes.protobuf")
TEXTS = st.text(min_size=1, max_size=3)
WORDS: Json = {"a": [{"b": "c"}]}
SCALAR_VALUES: dict[TypeName, st.SearchStrategy[Any]] = {
    "string": TEXTS,
    "bytes": st.sampled_from(("AA==", "aGVsbG8=")),
    "bool": st.just(value=True),
    "int32": st.integers(-(2**31), 2**31 - 1).filter(bool),
    "int64": st.integers(-(2**63), 2**63 - 1).filter(bool),
    "quantity": st.sampled_from(("1", "100m", "2Gi")),
    "intorstr": st.sampled_from((1, 65535, "http", "25%")),
    "time": st.sampled_from(("1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "0900-01-01T00:00:00Z")),
    "microtime": st.sampled_from(("1969-12-31T23:59:58.000001Z", "2026-01-01T00:00:00.999999Z")),
    "fieldsv1": st.just(WORDS),
    "rawextension": st.just(WORDS),
    "strings": st.lists(TEXTS),
}


def value_of(data: st.DataObject, field: Field, depth: int) -> Any:
    def single() -> Any:
        return (
            data.draw(SCALAR_VALUES[field.type_name])
            if field.type in SCALARS
            else message(data, field.type_name, depth - 1)
        )

    if field.list_of:
        return [single() for _ in range(data.draw(st.integers(1, 2)))]
    return {key: single() for key in data.draw(st.sets(TEXTS, min_size=1, max_size=2))} if field.map_of else single()


def message(data: st.DataObject, type_name: TypeName, depth: int = 6) -> Json:
    known = [each for each in fields(type_name).values() if each.number and (depth or each.type in SCALARS)]
    chosen = data.draw(st.lists(st.sampled_from(known), max_size=4, unique_by=lambda each: each.name)) if known else []
    made = {field.name: value_of(data, field, depth) for field in chosen}
    pointers = {each.name for each in chosen if each.pointer or each.list_of or each.map_of or each.type in SCALARS}
    return {name: value for name, value in made.items() if value or name in pointers}


@given(st.data())
def test_what_is_encoded_is_decoded(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from((*SERVED, SCALE)))
    obj = {"kind": kind.kind, "apiVersion": kind.api_version, **message(data, name_of(type_of(kind)))}
    assert decoded(encoding.encoded(obj)) == obj


@pytest.mark.parametrize(
    ("timestamp", "time", "micro_time"),
    [
        (b"", None, None),
        (wire.tag(2, 0) + wire.varint(0), "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
        (wire.tag(1, 0) + wire.varint(0), "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
        (wire.tag(1, 0) + wire.varint(-1), "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.000000Z"),
        (
            wire.tag(1, 0) + wire.varint(-2) + wire.tag(2, 0) + wire.varint(5999),
            "1969-12-31T23:59:58Z",
            "1969-12-31T23:59:58.000005Z",
        ),
        (wire.tag(1, 0) + wire.varint(int(datetime(1, 1, 1, tzinfo=UTC).timestamp())), None, None),
    ],
)
def test_times(timestamp: bytes, time: str | None, micro_time: str | None) -> None:
    """An absent Timestamp is the zero time, which is null; one without seconds is 1970 (time_proto.go of meta/v1)."""
    first, event_time = wire.delimited(6, timestamp), wire.delimited(10, timestamp)
    obj = decoded(encoding.enveloped("v1", "Event", first + event_time))
    assert (obj.get("firstTimestamp"), obj.get("eventTime")) == (time, micro_time)


def parts(body: bytes) -> dict[int, Any]:
    return dict(wire.fields(body))


def test_raw_json_is_as_go_writes_it() -> None:
    """Controllers compare the bytes of a revision's data with what encoding/json makes of the template."""
    obj: Json = {"kind": "ControllerRevision", "apiVersion": "apps/v1", "data": {"a": "b && <c>\u2028é"}}
    message = parts(encoding.encoded(obj)[4:])[2]
    assert parts(parts(message)[2])[1] == b'{"a":"b \\u0026\\u0026 \\u003cc\\u003e\\u2028\xc3\xa9"}'


def test_a_list_and_its_metadata() -> None:
    obj: Json = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "a", "namespace": "x"},
        "data": {"k": "v"},
    }
    version = stored_object_of(CONFIG_MAP, ("x", "a"), obj, 7)
    found = ListResult((version, version), "9", "token", 3)
    envelope = parts(Renderer(CATALOGUE, CONFIG_MAP, PROTOBUF).many(found, 0.0)[4:])
    assert parts(envelope[1]) == {1: b"v1", 2: b"ConfigMapList"}
    metadata, *items = wire.fields(envelope[2])
    assert parts(bytes(metadata[1])) == {2: b"9", 3: b"token", 4: 3}
    assert [number for number, _ in items] == [2, 2]
    item = encoding.enveloped("v1", "ConfigMap", items[0][1])  # type: ignore[arg-type]
    assert decoded(item) == version.obj
    partial = Renderer(
        CATALOGUE, CONFIG_MAP, Representation(PROTOBUF.media_type, "PartialObjectMetadataList", "v1beta1")
    )
    envelope = parts(partial.many(found, 0.0)[4:])
    assert parts(envelope[1]) == {1: b"meta.k8s.io/v1beta1", 2: b"PartialObjectMetadataList"}
    item = encoding.enveloped("v1", "ConfigMap", dict(wire.fields(envelope[2]))[2])  # type: ignore[arg-type]
    assert decoded(item) == {name: value for name, value in version.obj.items() if name != "data"}


def test_items_of_a_json_list_have_no_type() -> None:
    obj: Json = {"apiVersion": "v1", "metadata": {"name": "a"}, "kind": "Service", "spec": {}}
    version = stored_object_of(SERVICE, ("", "a"), obj, 7)
    item = {"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {}, "status": {"loadBalancer": {}}}
    renderer = Renderer(CATALOGUE, SERVICE, Representation())
    body = msgspec.json.decode(renderer.many(ListResult((version, version), "9"), 0.0))
    assert body == {
        "kind": "ServiceList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "9"},
        "items": [item] * 2,
    }
    older = type(version)(SERVICE, ("", "a"), 7, msgspec.json.encode(obj | {"metadata": item["metadata"]}))
    body = msgspec.json.decode(renderer.many(ListResult((older,), "9"), 0.0))
    assert body["items"] == [item]
    assert msgspec.json.decode(renderer.many(ListResult((), "9"), 0.0))["items"] == []
    assert msgspec.json.decode(WatchEvent("ADDED", version).line)["object"]["kind"] == "Service"


def test_a_watch_has_frames() -> None:
    obj: Json = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}
    renderer = Renderer(CATALOGUE, CONFIG_MAP, PROTOBUF)
    event = WatchEvent("ADDED", stored_object_of(CONFIG_MAP, ("", "a"), obj, 7))
    for frame, event_type, wanted in (
        (renderer.event(event, 0.0, first=True), b"ADDED", event.stored.obj),
        (
            renderer.bookmark(9, 0.0, ends_initial=False, first=False),
            b"BOOKMARK",
            obj | {"metadata": {"resourceVersion": "9"}},
        ),
        (
            renderer.error(not_found(CONFIG_MAP, "a").body()),
            b"ERROR",
            not_found(CONFIG_MAP, "a").body() | {"apiVersion": "v1"},
        ),
    ):
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        event_parts = parts(frame[4:])
        assert event_parts[1] == event_type
        assert {"metadata": {}, **decoded(parts(event_parts[2])[1])} == wanted


def test_what_has_no_message_is_json_only() -> None:
    status = not_found(CONFIG_MAP, "a").body()
    accept = f"{PROTOBUF.media_type},application/json"
    assert plain_representation(accept, status) == PROTOBUF
    assert plain_representation(accept, {"kind": "Widget", "apiVersion": "example.com/v1"}) == Representation()
