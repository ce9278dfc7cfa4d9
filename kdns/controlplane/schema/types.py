"""Types and fields: those of one Kubernetes release, read from data, and those that custom kinds derive.

Field validation, server-side apply, strategic merge patch, OpenAPI and protobuf decoding walk along this one form.
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
from functools import cache, cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from kdns.controlplane.apimachinery.kinds import Json

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
"""The package of the types that all kinds share."""

TypeName: TypeAlias = str
"""A type's full name, as OpenAPI spells it (io.k8s.api.core.v1.PodSpec), or a word of SCALARS."""

TypeRef: TypeAlias = "TypeName | Type"
"""A type by its name, or itself: types of custom kinds are not in the release."""

SCALARS: Final = frozenset(
    {"string", "bytes", "bool", "int32", "int64", "number", "quantity", "intorstr", "time", "microtime"}
    | {"fieldsv1", "rawextension", "strings"}
)
"""`strings` is a list of strings that is a map's value."""


class Field(msgspec.Struct, frozen=True, dict=True):
    """One field of a type; the elements of its list or map, and whole objects, are fields without a name.

    `type` is that of the elements of a list or a map. `strategy` holds "merge", "replace" or "retainKeys". Without a
    strategy objects merge and lists are replaced.
    """

    name: str
    type: TypeRef
    list_of: bool = False
    map_of: bool = False
    required: bool = False
    number: tuple[int, ...] = ()
    pointer: bool = False
    always: bool = False
    omitzero: bool = False
    strategy: tuple[str, ...] = ()
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
        """false, 0, "" and empty values are serialized: a pointer in Go, or a field without omitempty."""
        return self.pointer or self.always

    @cached_property
    def element(self) -> Field:
        return Field("", self.type)

    def child(self, name: str) -> Field | None:
        """A field of an object, or of the objects in a list; None if the schema has none of this name."""
        return self.element if self.map_of else fields(self.type).get(name)

    @cached_property
    def form(self) -> Form:
        """How field managers own the value: by part (items of a list by key, or of a set), or as a whole."""
        if self.map_of:
            return "atomic" if self.map_type == "atomic" else "map"
        if self.list_of:
            return _LIST_FORMS.get(self.list_type, "atomic")
        if self.map_type == "granular":  # overrides the map type of the field's type
            return "struct"
        is_whole = self.map_type == "atomic" or not fields(self.type) or resolved(self.type).atomic
        return "atomic" if is_whole else "struct"

    @cached_property
    def key_defaults(self) -> Mapping[str, Any]:
        return {key: fields(self.type)[key].default for key in sorted(self.list_map_keys)}


Form: TypeAlias = Literal["atomic", "struct", "map", "list", "set"]
_LIST_FORMS: Final[Mapping[str, Form]] = {"map": "list", "set": "set"}


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


class Package(msgspec.Struct, frozen=True):
    """One file of the data: `blocks` are the texts of its types by short name, `imports` its packages by short name."""

    name: str
    api_version: str
    imports: Mapping[str, str]
    blocks: Mapping[str, str]


def types() -> Mapping[TypeName, Type]:
    """Every type by its full name. Reads all data; for one type, `type_named` is faster."""
    files = sorted(file.name for file in _files().iterdir())
    packages = [package_named(name.removesuffix(".txt")) for name in files]
    names = (f"{package.name}.{short}" for package in packages for short in package.blocks)
    return {name: type_named(name) for name in names}


@cache
def type_named(type_name: TypeName) -> Type:
    """Parsed at the first call. Raises KeyError if the type does not exist."""
    name, _, short = type_name.rpartition(".")
    try:
        return parse_type(package_named(_short_package(name)), short)
    except FileNotFoundError:
        raise KeyError(type_name) from None


def resolved(type_ref: TypeRef) -> Type:
    """Raises KeyError for an unknown name."""
    return type_named(type_ref) if isinstance(type_ref, str) else type_ref


def fields(type_ref: TypeRef) -> Mapping[str, Field]:
    """By name; empty for a scalar. Raises KeyError for an unknown type."""
    return {} if type_ref in SCALARS else resolved(type_ref).fields


def _short_package(package: str) -> str:
    return ".".join(package.split(".")[-2:])


def _files() -> Traversable:
    return resources.files("kdns.controlplane.schema").joinpath("release")


@cache
def package_named(short: str) -> Package:
    """Raises FileNotFoundError if the package does not exist."""
    return parse_package(_files().joinpath(f"{short}.txt").read_text("utf-8"))


def parse_package(text: str) -> Package:
    """Types stay unparsed: most processes need few of them."""
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
    """Raises KeyError if the file lacks the type."""
    first, *lines = package.blocks[short].split("\n  ")
    words = dict(word.split("=", 1) for word in first.split(" ")[1:])
    unions = tuple(json.loads(words.get("unions", "[]")))
    known = {field.name: field for field in (_field(package, line) for line in lines)}
    return Type(f"{package.name}.{short}", known, words.get("map") == "atomic", unions)


def _field(package: Package, line: str) -> Field:
    name, reference, number, *words = line.split(" ")
    options: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        match key:
            case "pointer" | "always" | "omitzero":
                options[key] = True
            case "patch":
                strategies, _, merge_key = value.partition(":")
                options |= {"strategy": tuple(strategies.split(",")), "merge_key": merge_key}
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
        _resolved(package, reference.strip("[]{}")),
        list_of=reference.startswith("["),
        map_of=reference.startswith("{"),
        required=name.endswith("*"),
        number=() if number == "-" else tuple(map(int, number.split("."))),
        **options,
    )


def _resolved(package: Package, reference: str) -> TypeName:
    if reference in SCALARS:
        return reference
    other, _, short = reference.rpartition(".")
    return f"{package.imports[other] if other else package.name}.{short}"
