"""Decoding of application/vnd.kubernetes.protobuf bodies to JSON objects.

kubectl's `create` commands and many controllers send protobuf. Responses are JSON, which such clients accept as well.
The envelope is four magic bytes and a runtime.Unknown message (Kubernetes documentation, "Protobuf encoding").
Field numbers and types come from the schema. The wire format: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

import msgspec

from kdns.controlplane.meta.errors import StatusError, bad_request
from kdns.controlplane.meta.kinds import SERVED, Json
from kdns.controlplane.schema import schema
from kdns.controlplane.schema.schema import SCALARS, Field, TypeName
from kdns.controlplane.server.representation import JSON, YAML
from kdns.controlplane.server.views import BINDING, EVICTION, SCALE
from kdns.controlplane.storage.object_meta import timestamp

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\0"
_VARINT_BITS_MAX = 70
_DEPTH_MAX = 32

Value: TypeAlias = int | bytes

MessageFields: TypeAlias = "Mapping[int, Field | MessageFields]"
"""Number → a field of a message, or the fields of an inlined message, which JSON has in the parent."""


class ProtobufError(ValueError):
    """Bytes that are not a valid message."""


def decoded(body: bytes) -> Json:
    """The object in a protobuf body. 400 for malformed bytes, 415 for a kind whose field numbers are unknown."""
    try:
        return _enveloped(body)
    except (ValueError, OverflowError, OSError) as error:
        raise bad_request(
            f"the object provided is unrecognized: the body is no Kubernetes protobuf: {error}"
        ) from error


def _enveloped(body: bytes) -> Json:
    if not body.startswith(_MAGIC):
        raise ProtobufError("it does not begin with the four bytes k8s\\0")
    envelope = dict(_fields(body[len(_MAGIC) :]))
    named = {number: _text(value) for number, value in _fields(_bytes(envelope.get(1, b"")))}
    api_version, kind = named.get(1, ""), named.get(2, "")
    obj = _message(message_fields(_type(api_version, kind)), _bytes(envelope.get(2, b"")), 0)
    return {"kind": kind, "apiVersion": api_version, **obj}


def _type(api_version: str, kind: str) -> TypeName:
    if kind == "DeleteOptions":
        return f"{schema.META}.DeleteOptions"
    for served in (*SERVED, SCALE, EVICTION, BINDING):
        if (served.api_version, served.kind) == (api_version, kind):
            return schema.type_of(served)
    raise ProtobufError(f"no kind {kind!r} of {api_version!r} is served")


@cache
def message_fields(type_name: TypeName) -> MessageFields:
    """The fields of a type's message by number. StatusError 415 if the schema has no numbers for the type."""
    result: dict[int, Any] = {}
    for field in schema.fields(type_name).values():
        message = result
        for number in field.number[:-1]:
            message = message.setdefault(number, {})
        if field.number:
            message[field.number[-1]] = field
    if not result and schema.fields(type_name):
        short = type_name.rpartition(".")[2]
        raise StatusError(415, "UnsupportedMediaType", f"{short} is accepted as {JSON} or {YAML} only, not as protobuf")
    return result


def _message(numbers: MessageFields, body: bytes, depth: int) -> Json:
    """The JSON of a message. Fields that the schema does not know are skipped."""
    if depth > _DEPTH_MAX:
        raise ProtobufError("it is nested too deeply")
    obj = Json()
    for number, value in _fields(body):
        field = numbers.get(number)
        if isinstance(field, Field):
            _put(obj, field, value, depth)
        elif field is not None:
            obj |= _message(field, _bytes(value), depth + 1)
    return obj


def _put(obj: Json, field: Field, value: Value, depth: int) -> None:
    if field.list_of:
        obj.setdefault(field.name, []).append(_value(field.type, value, depth))
    elif field.map_of:
        entry = dict(_fields(_bytes(value)))
        element = entry.get(2, 0 if field.type in {"bool", "int32", "int64"} else b"")
        obj.setdefault(field.name, {})[_text(entry.get(1, b""))] = _value(field.type, element, depth)
    else:
        single = _value(field.type, value, depth)
        if field.pointer or single not in (None, "", 0, False, {}):
            obj[field.name] = single


def _value(type_name: TypeName, value: Value, depth: int) -> Any:
    if type_name in SCALARS:
        return _SCALARS[type_name](value)
    return _message(message_fields(type_name), _bytes(value), depth + 1)


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise ProtobufError("it has a number where bytes are due")
    return value


def _text(value: Value) -> str:
    return _bytes(value).decode()


def _integer(value: Value) -> int:
    if not isinstance(value, int):
        raise ProtobufError("it has bytes where a number is due")
    return value - (1 << 64) if value >= 1 << 63 else value


def _quantity(value: Value) -> str:
    return _text(dict(_fields(_bytes(value))).get(1, b""))


def _int_or_string(value: Value) -> int | str | None:
    """IntOrString: type 0 is a number, 1 a text; 0 means that nothing was set."""
    parts = dict(_fields(_bytes(value)))
    return _text(parts.get(3, b"")) if parts.get(1) else _integer(parts.get(2, 0))


def _time(value: Value) -> str | None:
    parts = dict(_fields(_bytes(value)))
    seconds = _integer(parts.get(1, 0))
    return timestamp(seconds) if seconds > 0 else None


def _micro_time(value: Value) -> str | None:
    whole = _time(value)
    nanoseconds = _integer(dict(_fields(_bytes(value))).get(2, 0))
    return f"{whole[:-1]}.{nanoseconds // 1000:06}Z" if whole else None


def _raw_json(value: Value) -> Any:
    raw = dict(_fields(_bytes(value))).get(1, b"null")
    try:
        return msgspec.json.decode(_bytes(raw))
    except msgspec.DecodeError as error:
        raise ProtobufError(f"a field of JSON text has none: {error}") from error


_SCALARS: dict[TypeName, Callable[[Value], Any]] = {
    "string": _text,
    "bytes": lambda value: base64.b64encode(_bytes(value)).decode(),
    "bool": lambda value: bool(_integer(value)),
    "int32": _integer,
    "int64": _integer,
    "quantity": _quantity,
    "intorstr": _int_or_string,
    "time": _time,
    "microtime": _micro_time,
    "fieldsv1": _raw_json,
    "rawextension": _raw_json,
    "strings": lambda value: [_text(each) for number, each in _fields(_bytes(value)) if number == 1],
}


def _fields(body: bytes) -> Iterator[tuple[int, Value]]:
    """(field number, number or bytes) in order of appearance."""
    position = 0
    while position < len(body):
        tag, position = _varint(body, position)
        match tag & 7:
            case 0:
                value, position = _varint(body, position)
                yield tag >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, position = _varint(body, position)
            case 5:
                length = 4
            case other:
                raise ProtobufError(f"it has a field of wire type {other}")
        chunk = body[position : position + length]
        if len(chunk) != length:
            raise ProtobufError("it ends too early")
        position += length
        yield tag >> 3, chunk


def _varint(body: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, _VARINT_BITS_MAX, 7):
        if position >= len(body):
            break
        byte = body[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, position
    raise ProtobufError("it has a number without an end")
