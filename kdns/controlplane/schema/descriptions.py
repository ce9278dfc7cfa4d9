"""kdns's own texts for types and fields, for `kubectl explain` and the headers of tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from kdns.controlplane.apimachinery.kinds import Kind
from kdns.controlplane.schema.schema import field_at, type_of
from kdns.controlplane.schema.types import TypeName, fields, name_of

_OBJECT = "*.Object"
_COMMON = frozenset({"apiVersion", "kind", "metadata"})


@dataclass(frozen=True, slots=True)
class Description:
    """The text of a type and those of its fields; `base` is a type whose texts replace missing ones."""

    text: str = ""
    fields: dict[str, str] = field(default_factory=dict)
    base: TypeName = ""


def type_description(type_name: TypeName) -> str:
    return _description(type_name).text


def field_description(type_name: TypeName, name: str) -> str:
    own = _description(type_name)
    base = own.base or (_OBJECT if fields(type_name).keys() >= _COMMON else "")
    return own.fields.get(name) or _description(base).fields.get(name, "")


def common_description(name: str) -> str:
    return _description(_OBJECT).fields[name]


def description_at(kind: Kind, path: str) -> str:
    """The text of the field at a path such as `spec.ports`, or "". A key of a map has the text of the map.

    Raises KeyError if the field does not exist.
    """
    parent, _, name = path.rpartition(".")
    field = field_at(kind, parent) if parent else None
    if field and field.map_of:
        return description_at(kind, parent)
    type_name = field.type_name if field else name_of(type_of(kind))
    return field_description(type_name, fields(type_name)[name].name)


def _description(type_name: TypeName) -> Description:
    return descriptions().get(type_name, _NONE)


_NONE = Description()


@cache
def descriptions() -> Mapping[TypeName, Description]:
    result: dict[TypeName, Description] = {}
    package = ""
    current = _NONE
    for line in (
        resources.files("kdns.controlplane.schema").joinpath("descriptions.txt").read_text("utf-8").splitlines()
    ):
        if not line or line.startswith("#"):
            continue
        if line.startswith("package "):
            package = line.split()[1]
            continue
        name, _, text = line.strip().partition(": ")
        if line.startswith(" "):
            current.fields[name] = text
        else:
            short, _, base = name.partition(" < ")
            current = result[f"{package}.{short}"] = Description(text, base=f"{package}.{base}" if base else "")
    return result
