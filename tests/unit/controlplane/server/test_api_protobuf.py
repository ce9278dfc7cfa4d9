"""Protobuf bodies: messages encoded here by hand are decoded, and any other bytes are 400."""

import re
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from object_api import refused
from served_kinds import SERVED

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.schema.types import Field, types
from kdns.controlplane.server import protobuf
from kdns.controlplane.server.protobuf import ProtobufError


def varint(number: int) -> bytes:
    out = bytearray()
    number &= 0xFFFF_FFFF_FFFF_FFFF
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    return b"".join(field(number, value) for number, value in fields)


def envelope(kind: str, raw: bytes, api_version: str = "v1") -> bytes:
    return b"k8s\0" + message((1, message((1, api_version), (2, kind))), (2, raw), (3, ""), (4, ""))


META = message((1, "web"), (2, ""), (8, b""), (11, message((1, "app"), (2, "x"))), (11, message((1, "b"), (2, "y"))))
PORT = message((1, "http"), (2, "TCP"), (3, 80), (4, message((1, 0), (2, 8080), (3, ""))), (5, 0))
NAMED = message((1, "dns"), (2, "UDP"), (3, 53), (4, message((1, 1), (2, 0), (3, "dns-udp"))), (6, "x"))


@pytest.mark.parametrize(
    ("kind", "raw", "obj"),
    [
        pytest.param("Namespace", b"", {}, id="empty"),
        pytest.param(
            "Namespace", message((1, META)), {"metadata": {"name": "web", "labels": {"app": "x", "b": "y"}}}, id="map"
        ),
        pytest.param(
            "Service",
            message((2, message((1, PORT), (1, NAMED), (3, ""), (20, 0), (13, 0)))),
            {
                "spec": {
                    "ports": [
                        {"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080},
                        {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": "dns-udp", "appProtocol": "x"},
                    ],
                    "allocateLoadBalancerNodePorts": False,
                }
            },
            id="zero values stay where they mean something",
        ),
        pytest.param(
            "Pod",
            message((2, message((1, message((1, "v"), (2, message((2, b"")))))))),
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            id="inlined message",
        ),
        pytest.param(
            "Pod",
            message((1, message((8, message((1, 1_700_000_000)))))),
            {"metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"}},
            id="time",
        ),
        pytest.param(
            "Pod",
            message((2, message((2, message((8, message((2, message((1, "cpu"), (2, message((1, "100m")))))))))))),
            {"spec": {"containers": [{"resources": {"requests": {"cpu": "100m"}}}]}},
            id="quantities in a map",
        ),
        pytest.param("Event", message((8, -1), (99, 1), (98, "later")), {"count": -1}, id="negative, unknown"),
        pytest.param(
            "DeleteOptions", message((1, 0), (4, "Orphan")), {"gracePeriodSeconds": 0, "propagationPolicy": "Orphan"},
            id="options",
        ),
    ],
)  # fmt: skip
def test_messages(kind: str, raw: bytes, obj: Json) -> None:
    assert protobuf.decoded(envelope(kind, raw)) == {"kind": kind, "apiVersion": "v1", **obj}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{}", "does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (b"k8s\0\x0a\x05v1", "unexpected EOF"),
        (b"k8s\0\xff", "unterminated varint"),
        (b"k8s\0\x0b", "wire type 3"),
        (envelope("Widget", b"", "apps/v1"), "no kind 'Widget' of 'apps/v1' is served"),
        (envelope("Service", message((1, 5))), "expected a length-delimited field, got a varint"),
        (envelope("Event", message((8, "x"))), "expected a varint, got a length-delimited field"),
        (envelope("Service", message((1, message((1, b"\xff"))))), "decode"),
        (envelope("Service", message((1, message((8, message((1, 1 << 60))))))), "too large"),
    ],
)
def test_refused_bodies(body: bytes, reason: str) -> None:
    with pytest.raises(ProtobufError, match=re.escape(reason)):
        protobuf.decoded(body)


@pytest.mark.parametrize(
    ("timestamp", "time", "micro_time"),
    [
        (b"", None, None),
        (varint(2 << 3) + varint(0), "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
        (varint(1 << 3) + varint(0), "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
        (varint(1 << 3) + varint(-1), "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.000000Z"),
        (
            varint(1 << 3) + varint(-2) + varint(2 << 3) + varint(5999),
            "1969-12-31T23:59:58Z",
            "1969-12-31T23:59:58.000005Z",
        ),
        (varint(1 << 3) + varint(int(datetime(1, 1, 1, tzinfo=UTC).timestamp())), None, None),
    ],
)
def test_times(timestamp: bytes, time: str | None, micro_time: str | None) -> None:
    """An absent Timestamp is the zero time, which is null; one without seconds is 1970 (time_proto.go of meta/v1)."""
    obj = protobuf.decoded(envelope("Event", message((6, timestamp), (10, timestamp))))
    assert (obj.get("firstTimestamp"), obj.get("eventTime")) == (time, micro_time)


@given(kind=st.sampled_from([kind.kind for kind in SERVED]), raw=st.binary(max_size=200))
def test_any_bytes_are_an_object_or_400(kind: str, raw: bytes) -> None:
    for body in (raw, b"k8s\0" + raw, envelope(kind, raw)):
        with suppress(ProtobufError):
            assert protobuf.decoded(body)["kind"]


def test_every_field_has_a_number_of_its_own() -> None:
    """In all types of the data; but apiVersion and kind, which are fields of the envelope.

    CustomResourceDefinitions have no protobuf.
    """
    for described in types().values():
        if ".apiextensions.v1." in described.name:
            continue
        numbers = {field.name: field.number for field in described.fields.values() if field.number}
        assert set(described.fields) - set(numbers) <= {"apiVersion", "kind"}, described.name
        assert len(set(numbers.values())) == len(numbers), described.name


def test_a_kind_without_numbers_takes_no_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "fields_of", lambda _: {"spec": Field("spec", "string")})
    why = "Widget is accepted as application/json or application/yaml only, not as protobuf"
    assert refused(415, why, protobuf.message_fields, "io.k8s.api.core.v1.Widget").reason == "UnsupportedMediaType"
