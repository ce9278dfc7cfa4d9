"""Objects that clients send as application/vnd.kubernetes.protobuf, turned into JSON objects.

kubectl's `create` commands and many controllers write protobuf; answers are JSON, which such clients accept as well.
The envelope is four magic bytes and a runtime.Unknown message (Kubernetes documentation, "Protobuf encoding").
Field numbers are in protobuf.txt, the types of fields come from the schema. The wire format: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

import msgspec

from kdns.controlplane import schema
from kdns.controlplane.kinds import SERVED, Json
from kdns.controlplane.metadata import timestamp
from kdns.controlplane.schema_text import SCALARS, Field, TypeName
from kdns.controlplane.status import bad_request
from kdns.controlplane.views import BINDING, EVICTION, SCALE

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\0"
_VARINT_BITS_MAX = 70
_DEPTH_MAX = 32

Value: TypeAlias = int | bytes


class ProtobufError(ValueError):
    """Bytes that are no such message."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A field by its JSON name, or (`inlined`) a message whose fields are the parent's."""

    name: str
    optional: bool = False
    inlined: bool = False


def decoded(body: bytes) -> Json:
    """The object in a protobuf body, with its kind and apiVersion; 400 for bytes that are none."""
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
    obj = _message(_type(api_version, kind), _bytes(envelope.get(2, b"")), 0)
    return {"kind": kind, "apiVersion": api_version, **obj}


def _type(api_version: str, kind: str) -> TypeName:
    if kind == "DeleteOptions":
        return f"{schema.META}.DeleteOptions"
    for served in (*SERVED, SCALE, EVICTION, BINDING):
        if (served.api_version, served.kind) == (api_version, kind):
            return schema.type_of(served)
    raise ProtobufError(f"no kind {kind!r} of {api_version!r} is served")


@cache
def _slots() -> Mapping[TypeName, Mapping[int, Slot]]:
    """protobuf.txt: message → field number → slot."""
    messages: dict[TypeName, dict[int, Slot]] = {}
    package, message = "", ""
    for line in resources.files("kdns.controlplane").joinpath("protobuf.txt").read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        words = line.split()
        if words[0] == "package":
            package = words[1]
            continue
        if not line.startswith(" "):
            message = f"{package}.{words.pop(0).removesuffix(':')}"
        for word in words:
            name, _, number = word.partition("=")
            inlined, optional = name.startswith("+"), name.endswith("*")
            full = f"{package}.{name[1:]}" if inlined else name.removesuffix("*")
            messages.setdefault(message, {})[int(number)] = Slot(full, optional, inlined)
    return messages


def _message(type_name: TypeName, body: bytes, depth: int, shape: TypeName = "") -> Json:
    """The JSON of a message; `shape` is the message its numbers are of where its fields are inlined in `type_name`."""
    if depth > _DEPTH_MAX:
        raise ProtobufError("it is nested too deeply")
    slots, types, obj = _slots().get(shape or type_name, {}), schema.fields(type_name), Json()
    for number, value in _fields(body):
        slot = slots.get(number)
        if slot is None:
            continue
        if slot.inlined:
            obj |= _message(type_name, _bytes(value), depth + 1, slot.name)
        elif (field := types.get(slot.name)) is not None:
            _put(obj, slot, field, value, depth)
    return obj


def _put(obj: Json, slot: Slot, field: Field, value: Value, depth: int) -> None:
    if field.list_of:
        obj.setdefault(slot.name, []).append(_value(field.type, value, depth))
    elif field.map_of:
        entry = dict(_fields(_bytes(value)))
        item = entry.get(2, 0 if field.type in {"bool", "int32", "int64"} else b"")
        obj.setdefault(slot.name, {})[_text(entry.get(1, b""))] = _value(field.type, item, depth)
    else:
        found = _value(field.type, value, depth)
        if slot.optional or found not in (None, "", 0, False, {}):
            obj[slot.name] = found


def _value(type_name: TypeName, value: Value, depth: int) -> Any:
    if type_name in SCALARS:
        return _SCALARS[type_name](value)
    return _message(type_name, _bytes(value), depth + 1)


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
    "json": _raw_json,
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
