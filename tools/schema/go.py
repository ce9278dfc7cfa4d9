"""What OpenAPI lacks of the API's Go types, from the tables beside this file: go.txt and markers.txt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources

_FIELD = re.compile(r"(?P<name>[\w$-]+)(?P<pointer>\*?)(?P<always>!?)(?P<omitzero>~?)=(?P<number>[0-9.]+|-)")


@dataclass(frozen=True, slots=True)
class GoField:
    """One field of a Go struct.

    `number` is the field's number in protobuf; the numbers of the messages that it is inlined from precede it.
    """

    number: tuple[int, ...] = ()
    pointer: bool = False
    always: bool = False
    """Its JSON tag lacks omitempty."""
    omitzero: bool = False
    markers: str = ""
    """`default=` and `enum=`, as words of the data."""


def go_types() -> Mapping[str, Mapping[str, GoField]]:
    """Type's full name → its fields by JSON name, those of inlined structs included."""
    entries: dict[str, list[str]] = {}
    package = name = ""
    for line in lines("go.txt"):
        words = line.split()
        if words[0] == "package":
            package = words[1]
            continue
        if not line.startswith(" "):
            name = f"{package}.{words.pop(0).removesuffix(':')}"
        entries.setdefault(name, []).extend(words)
    markers = {(where, field): rest for where, field, rest in (line.split(" ", 2) for line in lines("markers.txt"))}
    return {name: _fields(name, entries, markers) for name in entries}


def _fields(name: str, entries: Mapping[str, list[str]], markers: Mapping[tuple[str, str], str]) -> dict[str, GoField]:
    fields: dict[str, GoField] = {}
    package = name.rpartition(".")[0]
    for word in entries[name]:
        if word.startswith("+"):
            inlined, _, number = word[1:].partition("=")
            for field, each in _fields(f"{package}.{inlined}", entries, markers).items():
                fields[field] = replace(each, number=(int(number), *each.number))
        elif row := _FIELD.fullmatch(word):
            path = () if row["number"] == "-" else tuple(map(int, row["number"].split(".")))
            marked = markers.get((short_name(name), row["name"]), "")
            fields[row["name"]] = GoField(
                path, bool(row["pointer"]), bool(row["always"]), bool(row["omitzero"]), marked
            )
        else:
            raise ValueError(f"go.txt: {name}: {word!r} is not name=number")
    return fields


def short_name(name: str) -> str:
    """A type's name with the end of its package only: core.v1.PodSpec."""
    return ".".join(name.split(".")[-3:])


def lines(file: str) -> list[str]:
    """The lines of a table beside this file, without comments and empty ones."""
    text = (resources.files("tools.schema") / file).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
