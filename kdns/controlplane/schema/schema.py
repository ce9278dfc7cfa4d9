"""The types and fields of the API, as one Kubernetes release defines them.

Strict field validation, server-side apply, strategic merge patch, OpenAPI and protobuf decoding read this one schema.
The data are the files release/*.txt, one for each API group and version, which tools/schema makes:

    package io.k8s.api.core.v1 v1          the types' package in OpenAPI and the apiVersion of its kinds ("-": none)
    import io.k8s.…apis.meta.v1            a package that types refer to

    PodSpec                                a type: words; then its fields: name, type, protobuf number, words
      containers* [Container] 2 always patch=merge:name list=map:name
      nodeName string 10

`*` marks a required field. A type is a word of SCALARS, a type of the same package, or one of an imported package
(`meta.v1.ObjectMeta`); `[T]` is a list and `{T}` a map from strings. Number `2.1` is field 1 of the message 2, whose
fields stand among those of the type; "-" means that a field has no number. Words:

    pointer                  the Go field is a pointer: false, 0 and "" differ from an absent value
    always                   the Go field lacks omitempty: false, 0, "" and null are written
    omitzero                 the Go field is a struct and not written if it is zero, unlike others
    patch=merge:key          strategic merge patch: strategies with commas between, and the key of a merged list
    list=map:key,key         list type (atomic, set, map) and the keys of a map list
    map=atomic               map type (atomic, granular) of the field's map or object; of all objects in a type's line
    enum=A|B                 the values
    default="x"              the meaning of an absent value, as JSON
    unions=[…]               x-kubernetes-unions, as JSON
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

import msgspec

from kdns.controlplane.apimachinery.kinds import Kind
from kdns.controlplane.schema.custom.types import custom_type
from kdns.controlplane.schema.types import SCALARS, Field, Type, TypeName, TypeRef

KUBERNETES_VERSION: Final = "1.36.0"
"""The release that the API follows and that the data are of."""


class Package(msgspec.Struct, frozen=True):
    """One file of the data: `blocks` are the texts of its types by short name, `imports` its packages by short name."""

    name: str
    api_version: str
    imports: Mapping[str, str]
    blocks: Mapping[str, str]


def types() -> Mapping[TypeName, Type]:
    """Returns every type by its full name. Reads all data; for one type, `type_named` is faster."""
    files = sorted(file.name for file in _files().iterdir())
    packages = [_package(name.removesuffix(".txt")) for name in files]
    return {name: type_named(name) for each in packages for name in (f"{each.name}.{short}" for short in each.blocks)}


@cache
def type_named(type_name: TypeName) -> Type:
    """Returns the type of a full name, parsed at the first call. Raises KeyError if it does not exist."""
    name, _, short = type_name.rpartition(".")
    try:
        return parse_type(_package(_short_package(name)), short)
    except FileNotFoundError:
        raise KeyError(type_name) from None


def resolved(type_ref: TypeRef) -> Type:
    """Returns the type itself. Raises KeyError for an unknown name."""
    return type_named(type_ref) if isinstance(type_ref, str) else type_ref


def fields(type_ref: TypeRef) -> Mapping[str, Field]:
    """Returns the fields of a type by name; none for a scalar. Raises KeyError for an unknown type."""
    return {} if type_ref in SCALARS else resolved(type_ref).fields


def type_of(kind: Kind) -> TypeRef:
    """Returns the type that objects of a kind have. Raises KeyError if the release lacks it."""
    if kind.schema:
        return custom_type(kind.schema)
    type_name = type_at(kind.api_version, kind.kind)
    if type_name is None:
        raise KeyError(f"the schema of Kubernetes {KUBERNETES_VERSION} has no {kind.kind} in {kind.api_version}")
    return type_name


@cache
def type_at(api_version: str, kind: str) -> TypeName | None:
    """Returns the type of objects with this apiVersion and kind; None if the release lacks it."""
    group, _, version = api_version.rpartition("/")
    try:
        package = _package(f"{group.split('.')[0] or 'core'}.{version}")
    except (OSError, ValueError):
        return None
    if package.api_version != api_version or kind not in package.blocks:
        return None
    return f"{package.name}.{kind}"


def field_at(kind: Kind, path: str) -> Field:
    """Returns the field at a path such as `spec.ports.nodePort`, through lists and maps.

    Raises KeyError if it is absent.
    """
    type_name = type_of(kind)
    for name in path.split("."):
        field = fields(type_name)[name]
        type_name = field.type
    return field


def _short_package(package: str) -> str:
    """Returns the end of a package's name, by which files and references call it: core.v1."""
    return ".".join(package.split(".")[-2:])


def _files() -> Traversable:
    return resources.files("kdns.controlplane.schema").joinpath("release")


@cache
def _package(short: str) -> Package:
    """Returns a file of the data. Raises FileNotFoundError if it does not exist."""
    return parse_package(_files().joinpath(f"{short}.txt").read_text("utf-8"))


def parse_package(text: str) -> Package:
    """Returns the file's types, unparsed: most processes need few of them."""
    head, *blocks = text.rstrip("\n").split("\n\n")
    name = api_version = ""
    imports = {}
    for line in head.splitlines():
        match line.split():
            case ["package", name, api_version]:
                pass
            case ["import", package]:
                imports[_short_package(package)] = package
    return Package(name, api_version, imports, {block.split(None, 1)[0]: block for block in blocks})


def parse_type(package: Package, short: str) -> Type:
    """Returns one type of a file. Raises KeyError if the file lacks it."""
    first, *rest = package.blocks[short].split("\n  ")
    words = dict(word.split("=", 1) for word in first.split(" ")[1:])
    unions = tuple(json.loads(words.get("unions", "[]")))
    known = {field.name: field for field in (_field(package, line) for line in rest)}
    return Type(f"{package.name}.{short}", known, words.get("map") == "atomic", unions)


def _field(package: Package, line: str) -> Field:
    name, of, number, *words = line.split(" ")
    options: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        match key:
            case "pointer" | "always" | "omitzero":
                options[key] = True
            case "patch":
                strategies, _, merge_key = value.partition(":")
                options |= {"patch_strategy": tuple(strategies.split(",")), "merge_key": merge_key}
            case "list":
                list_type, _, keys = value.partition(":")
                options |= {"list_type": list_type, "list_map_keys": tuple(keys.split(",")) if keys else ()}
            case "map":
                options["map_type"] = value
            case "enum":
                options["enum"] = tuple(value.split("|"))
            case "default":
                options["default"] = json.loads(value)
            case _:
                raise ValueError(f"{package.name}: unknown word {word!r} in {line!r}")
    return Field(
        name.removesuffix("*"),
        _resolved(package, of.strip("[]{}")),
        list_of=of.startswith("["),
        map_of=of.startswith("{"),
        required=name.endswith("*"),
        number=() if number == "-" else tuple(map(int, number.split("."))),
        **options,
    )


def _resolved(package: Package, reference: str) -> TypeName:
    """Returns the full name of a type that a file refers to."""
    if reference in SCALARS:
        return reference
    other, _, short = reference.rpartition(".")
    return f"{package.imports[other] if other else package.name}.{short}"
