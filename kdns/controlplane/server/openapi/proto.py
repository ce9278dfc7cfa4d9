"""A Swagger document as protobuf: the message `openapi.v2.Document` of gnostic's OpenAPIv2.proto.

client-go reads `/openapi/v2` in this form only. The numbers below are that file's field numbers. Only the messages and
fields that kdns's documents use are listed; any other field raises KeyError, so that none is dropped silently.
Every value is length-delimited (type 2).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kdns.controlplane.meta.kinds import Json
from kdns.controlplane.server.protobuf.wire import tag, varint

Encoder: TypeAlias = Callable[[Any], bytes]
"""Encodes one value without its tag and length."""

FieldEncoder: TypeAlias = Callable[[Any], bytes]
"""Encodes a whole field: tag, length and payload, repeated for a repeated field."""


def _one(number: int, encoder: Encoder) -> FieldEncoder:
    """Returns a field that holds one length-delimited value."""
    key = tag(number, 2)

    def encoded(value: Any) -> bytes:
        payload = encoder(value)
        return key + varint(len(payload)) + payload

    return encoded


def _each(number: int, encoder: Encoder) -> FieldEncoder:
    """Returns a repeated field."""
    one = _one(number, encoder)
    return lambda values: b"".join(map(one, values))


def _pairs(number: int, encoder: Encoder) -> FieldEncoder:
    """Returns a repeated field of named values (name = 1, value = 2) for a JSON object."""
    name, value, pair = _one(1, _text), _one(2, encoder), _one(number, bytes)
    return lambda values: b"".join(pair(name(key) + value(each)) for key, each in values.items())


def _text(value: str) -> bytes:
    return value.encode()


def _any(value: Any) -> bytes:
    """Returns an Any: the value as YAML (yaml = 2); JSON is valid YAML."""
    return _one(2, _text)(json.dumps(value))


def _message(words: Mapping[str, FieldEncoder], extensions: int = 0) -> Encoder:
    """Returns the encoder of a JSON object; its `x-` members are named values in the field number `extensions`."""
    extension = _pairs(extensions, _any)

    def encoded(value: Json) -> bytes:
        extra = {word: each for word, each in value.items() if extensions and word.startswith("x-")}
        plain = [words[word](each) for word, each in value.items() if word not in extra]
        return b"".join([*plain, extension(extra)])

    return encoded


def _schema(value: Json) -> bytes:
    """Returns a Schema. The message is recursive, so its encoder is looked up at the call."""
    return _SCHEMA(value)


_SCHEMA = _message(
    {
        "$ref": _one(1, _text),
        "format": _one(2, _text),
        "description": _one(4, _text),
        "default": _one(5, _any),
        "required": _each(19, _text),
        "enum": _each(20, _any),
        "additionalProperties": _one(21, _one(1, _schema)),
        "type": _one(22, _one(1, _text)),
        "items": _one(23, _one(1, _schema)),
        "properties": _one(25, _pairs(1, _schema)),
    },
    extensions=31,
)
_DOCUMENT = _message(
    {
        "swagger": _one(1, _text),
        "info": _one(2, _message({"title": _one(1, _text), "version": _one(2, _text)})),
        "paths": _one(8, _message({})),
        "definitions": _one(9, _pairs(1, _schema)),
    }
)


def document_bytes(document: Json) -> bytes:
    """Returns the document in protobuf. Raises KeyError for a member that has no field number here."""
    return _DOCUMENT(document)
