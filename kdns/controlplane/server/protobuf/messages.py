"""The messages of the schema's types: the table of field numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.schema import schema
from kdns.controlplane.schema.types import META, Field, TypeName, fields

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\0"
"""The first bytes of a body; a runtime.Unknown message follows (Kubernetes documentation, "Protobuf encoding")."""

MessageFields: TypeAlias = "Mapping[int, Field | MessageFields]"
"""Number → a field of a message, or the fields of an inlined message, which JSON has in the parent."""

_META_KINDS: Final = frozenset(
    {"APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "DeleteOptions", "Status"}
)
"""Kinds of meta/v1 that every group has."""


def type_at(api_version: str, kind: str) -> TypeName | None:
    """Returns the type of a kind's message; None for a kind that the schema does not have."""
    return f"{META}.{kind}" if kind in _META_KINDS else schema.type_at(api_version, kind)


@cache
def message_fields(type_name: TypeName) -> MessageFields:
    """Returns the fields of a type's message by number. StatusError 415 if the schema has no numbers for the type."""
    result: dict[int, Any] = {}
    for field in fields(type_name).values():
        message = result
        for number in field.number[:-1]:
            message = message.setdefault(number, {})
        if field.number:
            message[field.number[-1]] = field
    if not result and fields(type_name):
        short = type_name.rpartition(".")[2]
        why = f"{short} is accepted as application/json or application/yaml only, not as protobuf"
        raise StatusError(415, "UnsupportedMediaType", why)
    return result
