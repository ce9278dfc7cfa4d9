"""Types and their fields: the form in which every schema is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from kdns.controlplane.apimachinery.kinds import Json

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
"""The package of the types that all kinds share."""

TypeName: TypeAlias = str
"""A type's full name, as OpenAPI spells it (io.k8s.api.core.v1.PodSpec), or a word of SCALARS."""

TypeRef: TypeAlias = "TypeName | Type"
"""A type by its name, or itself: those of custom kinds are not of the release."""

SCALARS: Final = frozenset(
    {"string", "bytes", "bool", "int32", "int64", "number", "quantity", "intorstr", "time", "microtime"}
    | {"fieldsv1", "rawextension", "strings"}
)
"""`strings` is a list of strings that is a map's value."""


class Field(msgspec.Struct, frozen=True):
    """One field of a type; `type` is that of the elements if the field is a list or a map."""

    name: str
    type: TypeRef
    list_of: bool = False
    map_of: bool = False
    required: bool = False
    number: tuple[int, ...] = ()
    pointer: bool = False
    always: bool = False
    omitzero: bool = False
    patch_strategy: tuple[str, ...] = ()
    merge_key: str = ""
    list_type: str = ""
    list_map_keys: tuple[str, ...] = ()
    map_type: str = ""
    enum: tuple[str, ...] = ()
    default: Any = None

    @property
    def type_name(self) -> TypeName:
        return name_of(self.type)

    @property
    def writes_zero(self) -> bool:
        """Whether false, 0, "" and what is empty are serialized: a pointer in Go, or a field without omitempty."""
        return self.pointer or self.always


class Type(msgspec.Struct, frozen=True, eq=False):
    """One object type; its fields are sorted by name. Objects of an open type may have further fields."""

    name: TypeName
    fields: Mapping[str, Field]
    atomic: bool = False
    unions: tuple[Json, ...] = ()
    is_open: bool = False

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]


def name_of(type_ref: TypeRef) -> TypeName:
    return type_ref if isinstance(type_ref, str) else type_ref.name
