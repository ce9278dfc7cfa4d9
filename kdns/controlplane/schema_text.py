"""The schema's text format: lines that people write, as frozen types.

    # a comment
    package core io.k8s.api.core.v1 v1        short name, name in OpenAPI, apiVersion of its kinds ("-" for none)

    PodSpec : What shall run.                 a type and its documentation
      containers* [Container] patch=merge:name list=map:name : The containers.
    EphemeralContainer < Container : One more field than a Container has.

A field is `name type words : documentation`; `*` after the name means required. A type is a word of SCALARS, a type of
the same package, or `package.Type`; `[T]` is a list and `{T}` a map from strings. The words, each optional:

    patch=merge:key          strategic merge patch: strategies with commas between, and the key of a merged list
    list=map:key,key         list type (atomic, set, map) and the keys of a map list
    map=atomic               a map, or (in a type's own line) an object, that is replaced as a whole
    enum=A|B                 the values
    default="x"              what an absent value means, as JSON
    zero=kept                false, 0 and "" differ from an absent value (in Go: a pointer, or no omitempty);
                             they do so in required fields too, and in no others
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

TypeName: TypeAlias = str
"""A type's full name, as OpenAPI spells it (io.k8s.api.core.v1.PodSpec), or a word of SCALARS."""

SCALARS = frozenset({"string", "bytes", "bool", "int32", "int64", "quantity", "intorstr", "time", "microtime", "json"})

_FIELD = re.compile(r"  (?P<name>\w+)(?P<required>\*?) (?P<type>[\w.{}\[\]]+)(?P<words>( [a-z]+=\S+)*) : (?P<doc>\S.*)")
_TYPE = re.compile(r"(?P<name>\w+)( < (?P<base>[\w.]+))?(?P<words>( [a-z]+=\S+)*) : (?P<doc>\S.*)")
_PACKAGE = re.compile(r"package (?P<short>\w+) (?P<full>[\w.]+) (?P<api_version>\S+)")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a type; `type` is that of the elements if the field is a list or a map."""

    name: str
    type: TypeName
    doc: str
    list_of: bool = False
    map_of: bool = False
    required: bool = False
    patch_strategy: tuple[str, ...] = ()
    merge_key: str = ""
    list_type: str = ""
    list_map_keys: tuple[str, ...] = ()
    map_type: str = ""
    enum: tuple[str, ...] = ()
    default: Any = None
    zero_kept: bool = False


@dataclass(frozen=True, slots=True)
class Type:
    """One object type; its fields are in the order of the text, inherited ones first."""

    name: TypeName
    api_version: str
    doc: str
    fields: Mapping[str, Field] = field(default_factory=dict)
    atomic: bool = False

    @property
    def short(self) -> str:
        """The name without its package."""
        return self.name.rpartition(".")[2]


@dataclass(slots=True)
class _Draft:
    """A type while its text is being read: references are as written, the base is not merged in."""

    where: str
    type: Type
    package: str
    base: str
    fields: dict[str, Field]


def parse(sources: Iterable[tuple[str, str]]) -> dict[TypeName, Type]:
    """All types of the texts (name and text of each), with references resolved and checked.

    ValueError names the text and line that is not as it should be.
    """
    packages: dict[str, str] = {}
    drafts: dict[TypeName, _Draft] = {}
    for source, text in sources:
        _read(source, text, packages, drafts)
    types: dict[TypeName, Type] = {}
    for name in drafts:
        _finish(name, drafts, packages, types)
    for draft in drafts.values():
        _check(draft.where, types[draft.type.name], types)
    return types


def _read(source: str, text: str, packages: dict[str, str], drafts: dict[TypeName, _Draft]) -> None:
    short = full = api_version = ""
    draft: _Draft | None = None
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{source}:{number}"
        if not line.strip() or line.startswith("#"):
            continue
        if found := _PACKAGE.fullmatch(line):
            short, full, api_version = found["short"], found["full"], found["api_version"].replace("-", "")
            if packages.setdefault(short, full) != full:
                raise ValueError(f"{where}: package {short} is {packages[short]} elsewhere")
        elif (found := _TYPE.fullmatch(line)) and full:
            name = f"{full}.{found['name']}"
            if name in drafts:
                raise ValueError(f"{where}: {name} is defined twice, first in {drafts[name].where}")
            atomic = found["words"].strip() == "map=atomic"
            empty = Type(name, api_version, found["doc"], {}, atomic)
            draft = drafts[name] = _Draft(where, empty, short, found["base"] or "", {})
        elif (found := _FIELD.fullmatch(line)) and draft:
            if found["name"] in draft.fields:
                raise ValueError(f"{where}: field {found['name']} is given twice")
            draft.fields[found["name"]] = _field(where, found)
        else:
            raise ValueError(f"{where}: not a package, type or field line: {line!r}")


def _field(where: str, found: re.Match[str]) -> Field:
    shape = found["type"]
    base = Field(
        found["name"],
        shape.strip("[]{}"),
        found["doc"],
        list_of=shape.startswith("["),
        map_of=shape.startswith("{"),
        required=bool(found["required"]),
    )
    words: dict[str, Any] = {}
    for word in found["words"].split():
        key, _, value = word.partition("=")
        head, _, keys = value.partition(":")
        match key:
            case "patch":
                words |= {"patch_strategy": tuple(head.split(",")), "merge_key": keys}
            case "list":
                words |= {"list_type": head, "list_map_keys": tuple(keys.split(",")) if keys else ()}
            case "map":
                words["map_type"] = value
            case "enum":
                words["enum"] = tuple(value.split("|"))
            case "default":
                words["default"] = json.loads(value)
            case "zero" if value == "kept":
                words["zero_kept"] = True
            case _:
                wanted = "patch=, list=, map=, enum=, default= or zero=kept"
                raise ValueError(f"{where}: unknown word {word!r}; wanted {wanted}")
    return replace(base, **words)


def _resolved(where: str, reference: str, package: str, packages: Mapping[str, str]) -> TypeName:
    if reference in SCALARS:
        return reference
    short, _, name = reference.rpartition(".")
    full = packages.get(short or package)
    if full is None:
        raise ValueError(f"{where}: {reference} names no package; known are {', '.join(sorted(packages))}")
    return f"{full}.{name}"


def _finish(
    name: TypeName, drafts: Mapping[TypeName, _Draft], packages: Mapping[str, str], types: dict[TypeName, Type]
) -> Type:
    """The type with its base merged in; remembered in `types`."""
    if name in types:
        return types[name]
    draft = drafts[name]
    inherited: Mapping[str, Field] = {}
    if draft.base:
        base = _resolved(draft.where, draft.base, draft.package, packages)
        if base not in drafts:
            raise ValueError(f"{draft.where}: the base {draft.base} is not defined")
        inherited = _finish(base, drafts, packages, types).fields
    own = {
        key: replace(each, type=_resolved(draft.where, each.type, draft.package, packages))
        for key, each in draft.fields.items()
    }
    types[name] = replace(draft.type, fields={**inherited, **own})
    return types[name]


def _check(where: str, checked: Type, types: Mapping[TypeName, Type]) -> None:
    for each in checked.fields.values():
        if each.type not in SCALARS and each.type not in types:
            raise ValueError(f"{where}: {checked.short}.{each.name} refers to {each.type}, which is not defined")
        for key in filter(None, (each.merge_key, *each.list_map_keys)):
            if each.type not in types or key not in types[each.type].fields:
                raise ValueError(f"{where}: {checked.short}.{each.name} merges by {key}, which {each.type} lacks")
