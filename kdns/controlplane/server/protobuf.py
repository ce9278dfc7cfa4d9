"""Requests as application/vnd.kubernetes.protobuf: kubectl's `create` commands and many controllers send it.

The wire format has numbers and length-delimited values, each behind a tag (protobuf.dev, "Encoding").
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.schema import schema
from kdns.controlplane.schema.types import META, SCALARS, Field, TypeName
from kdns.controlplane.schema.types import fields as fields_of

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\0"
"""The first bytes of a body; a runtime.Unknown message follows (Kubernetes documentation, "Protobuf encoding")."""

MessageFields: TypeAlias = "Mapping[int, Field | MessageFields]"
"""By number: a field of a message, or the fields of an inlined message, which JSON has in the parent."""

_VARINT_BITS_MAX = 70
_WORD = 0xFFFF_FFFF_FFFF_FFFF
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - all times are UTC
_ZERO: Final = datetime.min  # noqa: DTZ901

Value: TypeAlias = int | bytes


class ProtobufError(ValueError):
    """Bytes that are not a valid message."""


def decoded(body: bytes) -> Json:
    """Raises ProtobufError for malformed bytes, 415 for a kind without field numbers."""
    try:
        return _enveloped(body)
    except ProtobufError:
        raise
    except (ValueError, OverflowError, OSError) as error:
        raise ProtobufError(str(error)) from error


def _enveloped(body: bytes) -> Json:
    if not body.startswith(MAGIC):
        expected = " ".join(map(str, MAGIC))
        raise ProtobufError(f"provided data does not appear to be a protobuf message, expected prefix [{expected}]")
    envelope = dict(fields(body[len(MAGIC) :]))
    named = {number: _text(value) for number, value in fields(_bytes(envelope.get(1, b"")))}
    api_version, kind = named.get(1, ""), named.get(2, "")
    type_name = type_at(api_version, kind)
    if type_name is None:
        raise ProtobufError(f"no kind {kind!r} of {api_version!r} is served")
    obj = _message(message_fields(type_name), _bytes(envelope.get(2, b"")))
    return {"kind": kind, "apiVersion": api_version, **obj}


def type_at(api_version: str, kind: str) -> TypeName | None:
    """None for a kind that the schema lacks."""
    return f"{META}.{kind}" if kind == "DeleteOptions" else schema.type_at(api_version, kind)


@cache
def message_fields(type_name: TypeName) -> MessageFields:
    """Fields by number. Raises 415 if the schema has no numbers for the type."""
    result: dict[int, Any] = {}
    for field in fields_of(type_name).values():
        message = result
        for number in field.number[:-1]:
            message = message.setdefault(number, {})
        if field.number:
            message[field.number[-1]] = field
    if not result and fields_of(type_name):
        short = type_name.rpartition(".")[2]
        why = f"{short} is accepted as application/json or application/yaml only, not as protobuf"
        raise StatusError(415, "UnsupportedMediaType", why)
    return result


def _message(numbers: MessageFields, body: bytes) -> Json:
    """No type with field numbers contains itself, so the schema bounds the depth."""
    obj = Json()
    for number, value in fields(body):
        field = numbers.get(number)
        if isinstance(field, Field):
            _put(obj, field, value)
        elif field is not None:
            obj |= _message(field, _bytes(value))
    return obj


def _put(obj: Json, field: Field, value: Value) -> None:
    if field.list_of:
        obj.setdefault(field.name, []).append(_value(field.type_name, value))
    elif field.map_of:
        entry = dict(fields(_bytes(value)))
        element = entry.get(2, 0 if field.type_name in {"bool", "int32", "int64"} else b"")
        obj.setdefault(field.name, {})[_text(entry.get(1, b""))] = _value(field.type_name, element)
    else:
        single = _value(field.type_name, value)
        if field.pointer or single not in (None, "", 0, False, {}):
            obj[field.name] = single


def _value(type_name: TypeName, value: Value) -> Any:
    if type_name in SCALARS:
        return _SCALARS[type_name](value)
    return _message(message_fields(type_name), _bytes(value))


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise ProtobufError("expected a length-delimited field, got a varint")
    return value


def _text(value: Value) -> str:
    return _bytes(value).decode()


def _integer(value: Value) -> int:
    if not isinstance(value, int):
        raise ProtobufError("expected a varint, got a length-delimited field")
    return value - (1 << 64) if value >= 1 << 63 else value


def _quantity(value: Value) -> str:
    return _text(dict(fields(_bytes(value))).get(1, b""))


def _int_or_string(value: Value) -> int | str:
    """IntOrString: type 0 is a number, by default 0, and 1 a text."""
    parts = dict(fields(_bytes(value)))
    return _text(parts.get(3, b"")) if parts.get(1) else _integer(parts.get(2, 0))


def _moment(value: Value) -> datetime | None:
    """A Timestamp of Unix seconds and nanoseconds. None for an empty message and the first second of year 1."""
    body = _bytes(value)
    parts = dict(fields(body))
    moment = _EPOCH + timedelta(seconds=_integer(parts.get(1, 0)), microseconds=_integer(parts.get(2, 0)) // 1000)
    return moment if body and moment != _ZERO else None


def _time(value: Value) -> str | None:
    moment = _moment(value)
    return f"{moment.isoformat(timespec='seconds')}Z" if moment else None


def _micro_time(value: Value) -> str | None:
    moment = _moment(value)
    return f"{moment.isoformat(timespec='microseconds')}Z" if moment else None


def _raw_json(value: Value) -> Any:
    raw = dict(fields(_bytes(value))).get(1, b"null")
    try:
        return msgspec.json.decode(_bytes(raw))
    except msgspec.DecodeError as error:
        raise ProtobufError(f"expected JSON text: {error}") from error


def fields(body: bytes) -> Iterator[tuple[int, Value]]:
    """(field number, number or bytes) in order of appearance."""
    position = 0
    while position < len(body):
        key, position = _varint(body, position)
        match key & 7:
            case 0:
                value, position = _varint(body, position)
                yield key >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, position = _varint(body, position)
            case 5:
                length = 4
            case other:
                raise ProtobufError(f"unknown wire type {other}")
        chunk = body[position : position + length]
        if len(chunk) != length:
            raise ProtobufError("unexpected EOF")
        position += length
        yield key >> 3, chunk


def _varint(body: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, _VARINT_BITS_MAX, 7):
        if position >= len(body):
            break
        byte = body[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & _WORD, position
    raise ProtobufError("unterminated varint")


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
    "strings": lambda value: [_text(item) for number, item in fields(_bytes(value)) if number == 1],
}
