"""Encoding of objects, lists and watch events: responses to clients that accept protobuf.

Differs: fields that have no value are omitted, as any decoder of protobuf allows; kube-apiserver writes zeros.
An inlined message is written once for each of its fields: decoders merge the parts (protobuf.dev, "Last One Wins").
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from kdns.controlplane.meta.kinds import Json
from kdns.controlplane.schema.schema import fields
from kdns.controlplane.schema.types import META, SCALARS, Field, TypeName
from kdns.controlplane.server.protobuf.messages import MAGIC, type_at
from kdns.controlplane.server.protobuf.wire import delimited, tag, varint

Encoder: TypeAlias = Callable[[Any], bytes]
"""Encodes one value, without its tag and length."""

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the texts of times are converted to UTC
_SECOND, _MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
_META_GROUP: Final = "meta.k8s.io/"
_LENGTH_BYTES = 4
_ESCAPED: Final = re.compile("[<>&\u2028\u2029]")


def is_encodable(api_version: str, kind: str) -> bool:
    """Returns whether the schema has the field numbers of a kind."""
    return _encoder(api_version, kind) is not None


def encoded(obj: Json) -> bytes:
    """Returns an object in an envelope. Raises TypeError for a kind that is not `is_encodable`."""
    api_version, kind = obj.get("apiVersion", ""), obj["kind"]
    encoder = _encoder(api_version, kind)
    if encoder is None:
        raise TypeError(f"the schema has no field numbers for {kind} of {api_version}")
    return enveloped(api_version, kind, encoder(obj))


def encoded_list(
    api_version: str, kind: str, metadata: Json, item_type: tuple[str, str], items: Iterable[Json]
) -> bytes:
    """Returns a list in an envelope; `item_type` is the apiVersion and kind of the items."""
    encoder = _encoder(*item_type)
    if encoder is None:
        raise TypeError(f"the schema has no field numbers for {item_type[1]} of {item_type[0]}")
    parts = [delimited(1, _message(f"{META}.ListMeta")(metadata)), *(delimited(2, encoder(item)) for item in items)]
    return enveloped(api_version, kind, b"".join(parts))


def enveloped(api_version: str, kind: str, message: bytes) -> bytes:
    """Returns a message behind the magic bytes, in a runtime.Unknown with its type."""
    return (
        MAGIC + delimited(1, delimited(1, api_version.encode()) + delimited(2, kind.encode())) + delimited(2, message)
    )


def event(event_type: str, obj: bytes) -> bytes:
    """Returns a frame of a watch: its length, and a WatchEvent with an enveloped object."""
    body = delimited(1, event_type.encode()) + delimited(2, delimited(1, obj))
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


@cache
def _encoder(api_version: str, kind: str) -> Encoder | None:
    """Returns the encoder of a kind's objects."""
    if kind == "PartialObjectMetadata" and api_version.startswith(_META_GROUP):
        metadata = _message(f"{META}.ObjectMeta")
        return lambda obj: delimited(1, metadata(obj["metadata"]))
    type_name = type_at(api_version, kind)
    if type_name is None or not any(field.number for field in fields(type_name).values()):
        return None
    return _message(type_name)


@cache
def _message(type_name: TypeName) -> Encoder:
    """Returns the encoder of a type's messages. Encoders of fields are made at their first use: types are recursive."""
    known = {name: field for name, field in fields(type_name).items() if field.number}
    writers: dict[str, Encoder] = {}

    def written(obj: Json) -> bytes:
        parts = []
        for name, value in obj.items():
            if value is None or name not in known:
                continue
            writer = writers.get(name)
            if writer is None:
                writer = writers[name] = _field(known[name])
            parts.append(writer(value))
        return b"".join(parts)

    return written


def _field(field: Field) -> Encoder:
    """Returns the encoder of a whole field: tags, lengths and values."""
    *outer, number = field.number
    if field.map_of:
        write = _entries(number, _single(2, field.type_name))
    elif field.list_of:
        single = _single(number, field.type_name)

        def write(value: Any) -> bytes:
            return b"".join(map(single, value))

    else:
        write = _single(number, field.type_name)
    for each in reversed(outer):
        write = _inlined(each, write)
    return write


def _inlined(number: int, inner: Encoder) -> Encoder:
    return lambda value: delimited(number, inner(value))


def _single(number: int, type_name: TypeName) -> Encoder:
    """Returns the encoder of one value with its tag."""
    if type_name in {"bool", "int32", "int64"}:
        key = tag(number, 0)
        return lambda value: key + varint(value or 0)
    payload = _SCALARS[type_name] if type_name in SCALARS else _message(type_name)
    key = tag(number, 2)

    def written(value: Any) -> bytes:
        body = b"" if value is None else payload(value)
        size = len(body)
        return key + (bytes((size,)) if size < 0x80 else varint(size)) + body

    return written


def _entries(number: int, value_writer: Encoder) -> Encoder:
    """Returns the encoder of a map: a message of key and value for each entry."""
    return lambda value: b"".join(
        delimited(number, delimited(1, key.encode()) + value_writer(each)) for key, each in value.items()
    )


def _quantity(value: Any) -> bytes:
    return delimited(1, str(value).encode())


def _int_or_string(value: Any) -> bytes:
    if isinstance(value, str):
        return tag(1, 0) + varint(1) + delimited(3, value.encode())
    return tag(2, 0) + varint(value)


@lru_cache(maxsize=64)
def _time(value: str) -> bytes:
    """Encodes a Timestamp; a missing value is an empty message, which is Go's zero time."""
    if not value:
        return b""
    moment = datetime.fromisoformat(value)
    since = moment.replace(tzinfo=None) - (moment.utcoffset() or timedelta()) - _EPOCH
    nanoseconds = since % _SECOND // _MICROSECOND * 1000
    return tag(1, 0) + varint(since // _SECOND) + (tag(2, 0) + varint(nanoseconds) if nanoseconds else b"")


def _raw_json(value: Any) -> bytes:
    """Returns JSON text as Go's encoding/json writes it: clients compare revisions byte by byte."""
    text = msgspec.json.encode(value).decode()
    return delimited(1, _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode())


_SCALARS: Final[dict[TypeName, Encoder]] = {
    "string": str.encode,
    "bytes": base64.b64decode,
    "quantity": _quantity,
    "intorstr": _int_or_string,
    "time": _time,
    "microtime": _time,
    "fieldsv1": _raw_json,
    "rawextension": _raw_json,
    "strings": lambda value: b"".join(delimited(1, each.encode()) for each in value),
}
