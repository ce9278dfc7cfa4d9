"""The fields of every kind that the control plane serves: looked up, checked against and pruned to.

The facts are in schema_*.txt beside this file (format: schema_text.py); a further kind is a row in kinds.py and text.
OpenAPI, strict field validation, strategic merge patch and `kubectl explain` all read this one schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from kdns.controlplane.kinds import Kind
from kdns.controlplane.schema_text import SCALARS, Field, Type, TypeName, parse

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
"""The package of the types that all kinds share."""


@cache
def types() -> Mapping[TypeName, Type]:
    """Every object type by its full name; the texts are read on the first call."""
    files = sorted(resources.files("kdns.controlplane").iterdir(), key=lambda file: file.name)
    return parse(
        (file.name, file.read_text("utf-8"))
        for file in files
        if file.name.startswith("schema_") and file.name.endswith(".txt")
    )


def fields(type_name: TypeName) -> Mapping[str, Field]:
    """The fields of a type by name; none for a scalar. KeyError if there is no such type."""
    return {} if type_name in SCALARS else types()[type_name].fields


@cache
def type_of(kind: Kind) -> TypeName:
    """The type that objects of a kind have. KeyError if no text defines it."""
    for each in types().values():
        if each.short == kind.kind and each.api_version == kind.api_version:
            return each.name
    raise KeyError(f"no schema text defines {kind.kind} in {kind.api_version}")


def field_at(kind: Kind, path: str) -> Field:
    """The field at a path such as `spec.ports.nodePort`; lists and maps are looked through. KeyError if absent."""
    type_name = type_of(kind)
    for name in path.split("."):
        found = fields(type_name)[name]
        type_name = found.type
    return found


@dataclass(frozen=True, slots=True)
class PatchSchema:
    """What strategic merge patch needs to know of one place in an object: a field, or the object itself.

    `strategy` holds "merge", "replace", "retainKeys" or nothing: objects then merge and lists are replaced.
    """

    type: TypeName
    is_list: bool = False
    is_map: bool = False
    strategy: tuple[str, ...] = ()
    merge_key: str = ""

    def child(self, field: str) -> PatchSchema | None:
        """The place of a field, seen through a list to its elements; None where the schema knows nothing."""
        if self.is_map:
            return PatchSchema(self.type)
        found = fields(self.type).get(field)
        if found is None:
            return None
        return PatchSchema(found.type, found.list_of, found.map_of, found.patch_strategy, found.merge_key)


def patch_schema(kind: Kind) -> PatchSchema:
    """Where strategic merge patch starts for objects of a kind."""
    return PatchSchema(type_of(kind))
