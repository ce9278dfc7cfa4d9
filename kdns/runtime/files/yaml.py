"""Door to PyYAML: text to documents with line numbers, as kubectl reads YAML and JSON, and values to text.

A text is split at its `---` first, so that a mistake loses one document only. libyaml makes events of each document,
and values are made of those here: its own composer recurses in C as deep as the text does.

Dates stay text, keys become text, numbers are those of YAML 1.2, and of duplicate keys the last value is used. JSON is
read as YAML; objects of JSON may follow each other without a separator.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias

import yaml

from kdns.errors import ManifestError

DEPTH_MAX: Final = 200
"""The deepest nesting of objects and lists."""

_EXPANDED_SIZE_MAX = 250_000
"""How much more than twice the text its expanded aliases may hold, in nodes and characters."""

_MISTAKES_MAX = 100
"""Mistakes of one text; after this many it is not read on."""

_SHOWN_CHARACTERS = 80
_TEMPLATE = "a key must be text, got an object; `{{ … }}` is a template's: render it first, as `helm template` does"
_ITEMS_DEPTH = 2
_SEPARATOR = re.compile(r"^(?=---(?:\s|$))", re.MULTILINE)
_DIRECTIVE = re.compile(r"^%(?=YAML|TAG)", re.MULTILINE)
_BYTE_ORDER_MARK = re.compile("^\ufeff", re.MULTILINE)
_JSON_OBJECT = re.compile(r"\s*(?=\{)")
_JSON = json.JSONDecoder()
_SURROGATES = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u(?:([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_OTHER_BREAKS = re.compile("\r(?!\n)|[\x85\u2028\u2029]")
"""What ends a line in YAML 1.1, and not in an editor."""

_TAG = "tag:yaml.org,2002:"
_TEXT_TAG = _TAG + "str"
_TEXT_TAGS = frozenset({_TEXT_TAG, "!"})
_PLAIN_TAGS = frozenset({None, _TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"})
_WORDS: dict[str, bool | None] = {
    spelling: value
    for value, words in ((True, ("true", "yes", "on")), (False, ("false", "no", "off")), (None, ("null", "~", "")))
    for word in words
    for spelling in (word, word.title(), word.upper())
}
_NUMBER_STARTS = frozenset("+-.0123456789")
_INT = re.compile(
    "[-+]?(?:0|[1-9][0-9]{0,19}|(?P<octal>0[0-7]{1,22})|0[oO][0-7]{1,22}|0[xX][0-9a-fA-F]{1,16}|0[bB][01]{1,64})"
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INT_MIN, _INT_MAX, _EXACT_FLOAT_MAX = -(2**63), 2**64 - 1, 2**53

_Event: TypeAlias = Any
"""An event of libyaml; PyYAML's types lack the fields of events."""


@dataclass(frozen=True, slots=True)
class Document:
    """An object of a file and the line (from 1) it starts at."""

    path: str
    line: int
    value: Any


class Stream(NamedTuple):
    """The documents of a text that have no mistake, the objects of lists (List, ServiceList …) one by one.

    Of duplicate keys, which are not mistakes, the last value is used.
    """

    documents: tuple[Document, ...]
    mistakes: tuple[ManifestError, ...]
    duplicates: tuple[ManifestError, ...]


def parse(path: str, text: str) -> Stream:
    mistakes, duplicates = list[ManifestError](), list[ManifestError]()
    objects = tuple(
        Document(path, reader.line(keys), value) for reader, keys, value in _objects(path, text, mistakes, duplicates)
    )
    return Stream(objects, tuple(mistakes), tuple(duplicates))


def documents(path: str, text: str) -> tuple[Document, ...]:
    """Those of `parse`. ManifestError for the first mistake."""
    stream = parse(path, text)
    if stream.mistakes:
        raise stream.mistakes[0]
    return stream.documents


def field_lines(path: str, text: str, fields: Iterable[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """The line of each field such as `spec.ports[0].port`, which is given with the line of its object.

    A field that does not exist has the line of its deepest parent that does. A key with dots may be in brackets:
    `metadata.labels[example.com/name]`.
    """
    lines = {(line, name): line for line, name in fields}
    names_by_line: dict[int, list[str]] = {}
    for line, name in lines:
        if name:
            names_by_line.setdefault(line, []).append(name)
    for reader, keys, _ in _objects(path, text, [], [], keeps_lines=True) if names_by_line else ():
        line = reader.line(keys)
        if line in names_by_line:
            known = {_dotted(names): number for names, number in reader.lines.items() if names[: len(keys)] == keys}
            for name in names_by_line.pop(line):
                deepest = _dotted((*keys, name))
                while deepest not in known:
                    deepest = deepest.rpartition(".")[0]
                lines[line, name] = known[deepest]
    return lines


def _dotted(names: Sequence[str | int]) -> str:
    """A path without the brackets of indices, and of keys with dots."""
    return "".join(f".{name}" for name in names).replace("]", "").replace("[", ".").replace("..", ".")


def dumped(value: Any, *, sort_keys: bool = False) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=sort_keys, allow_unicode=True, default_flow_style=False)


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, _value: Any) -> bool:
        return True

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """Text is quoted that is something else here, or in YAML 1.1, which PyYAML itself knows."""
        tag = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        return tag if tag != _TEXT_TAG or not implicit[0] or isinstance(_plain_value(value), str) else ""


def _objects(
    path: str, text: str, mistakes: list[ManifestError], duplicates: list[ManifestError], *, keeps_lines: bool = False
) -> Iterator[_Object]:
    for first_line, part in _parts(text):
        try:
            yield from _Reader(path, part, first_line, duplicates, keeps_lines=keeps_lines).objects()
        except ManifestError as error:
            mistakes.append(error)
        except yaml.YAMLError as error:
            mistakes.append(_not_yaml(path, part, first_line, error))
        if len(mistakes) == _MISTAKES_MAX:
            mistakes.append(ManifestError(path, 0, "", f"there are {_MISTAKES_MAX} mistakes in the YAML, or more"))
            return


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """Each document, or each object of JSON, with the number of lines before it.

    Directives become comments: tags are those of YAML itself.
    """
    text = _DIRECTIVE.sub("#", _BYTE_ORDER_MARK.sub("", text))
    if _JSON_OBJECT.match(text):
        text = _SURROGATES.sub(_surrogates, text)
    first_line = 0
    for document in _SEPARATOR.split(text):
        for part in _json_objects(document):
            yield first_line, part
            first_line += part.count("\n")


def _surrogates(escapes: re.Match[str]) -> str:
    """The character of two escapes; a lone one is U+FFFD, as in Go."""
    pair = bytes.fromhex(escapes[2] + escapes[3]).decode("utf-16-be") if escapes[2] else "\ufffd"
    return escapes[1] + pair


def _json_objects(text: str) -> Iterator[str]:
    """The objects of JSON at the beginning of a text, and what follows them."""
    begin = 0
    while start := _JSON_OBJECT.match(text, begin):
        try:
            _, end = _JSON.raw_decode(text, start.end())
        except (ValueError, RecursionError):  # YAML in flow style, or a mistake
            break
        yield text[begin:end]
        begin = end
    yield text[begin:]


def _not_yaml(path: str, text: str, first_line: int, error: yaml.YAMLError) -> ManifestError:
    if isinstance(error, yaml.MarkedYAMLError):
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        before = text.rstrip().count("\n", 0, error.problem_mark.index) if error.problem_mark else 0
    else:  # a ReaderError
        reason = str(error).partition("\n")[0]
        before = text.encode()[: getattr(error, "position", 0)].count(b"\n")
    return ManifestError(path, first_line + before + 1, "", f"not YAML: {reason}")


class _Reader:
    """The value of the YAML document of a text that begins after `first_line` lines of its file.

    `lines` are those of the document, its list items and, with `keeps_lines`, of all its fields, by their keys
    and indices from the document on.
    """

    def __init__(
        self, path: str, text: str, first_line: int, duplicates: list[ManifestError], *, keeps_lines: bool
    ) -> None:
        self._path, self._first_line, self._duplicates = path, first_line, duplicates
        self._next = yaml.CBaseLoader(text).get_event
        self._room = 2 * len(text) + _EXPANDED_SIZE_MAX
        self._lines_depth = DEPTH_MAX if keeps_lines else _ITEMS_DEPTH
        self._other_breaks = [other.start() for other in _OTHER_BREAKS.finditer(text)]
        self._anchors: dict[str, Any] = {}
        self._keys: list[str | int] = []
        self.lines: dict[tuple[str | int, ...], int] = {}

    def objects(self) -> Iterator[_Object]:
        """Those that are not null."""
        while event := self._next():
            if isinstance(event, yaml.DocumentStartEvent):
                root = self._next()
                yield from self._listed(self._value(root, self._line(root)))

    def line(self, keys: Sequence[str | int]) -> int:
        """The line of the value with these keys, or of the alias or merge key that it is in."""
        while tuple(keys) not in self.lines:
            keys = keys[:-1]
        return self.lines[tuple(keys)]

    def _listed(self, value: Any) -> Iterator[_Object]:
        if not (isinstance(value, dict) and str(value.get("kind", "")).endswith("List") and "items" in value):
            if value is not None:
                yield self, (), value
            return
        if not isinstance(value["items"], list):
            raise ManifestError(self._path, self.line(("items",)), "items", "expected a list of objects")
        item_kind = value["kind"].removesuffix("List")
        shared = {"apiVersion": value.get("apiVersion"), "kind": item_kind} if item_kind else {}
        for number, item in enumerate(value["items"]):
            yield self, ("items", number), shared | item if isinstance(item, dict) else item

    def _value(self, event: _Event, line: int) -> Any:
        """The value that begins with this event; its key, or else the value itself, is at `line`."""
        if len(self._keys) <= self._lines_depth:
            self.lines[tuple(self._keys)] = line
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        else:
            self._check_depth(event, len(self._keys))
            value = self._list() if isinstance(event, yaml.SequenceStartEvent) else self._object()
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _alias(self, event: _Event) -> Any:
        if event.anchor not in self._anchors:
            raise self._error(event, f"found undefined alias {str(event.anchor)[:_SHOWN_CHARACTERS]!r}")
        return self._copied(self._anchors[event.anchor], event, len(self._keys))

    def _scalar(self, event: _Event) -> Any:
        if event.tag in _TEXT_TAGS or not (event.tag or event.implicit[0]):
            return event.value
        if event.tag in _PLAIN_TAGS:
            return _plain_value(event.value)
        raise self._error(event, f"the tag {event.tag[:_SHOWN_CHARACTERS]} has no counterpart in JSON")

    def _list(self) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            self._keys.append(len(items))
            items.append(self._value(event, self._line(event)))
            self._keys.pop()
        return items

    def _object(self) -> dict[str, Any]:
        """The fields; those of merge keys `<<` come first, and of a list there, the earlier objects win."""
        fields: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            is_merge = False
            if isinstance(event, yaml.AliasEvent):
                key = self._key(event, self._alias(event))
            elif not isinstance(event, yaml.ScalarEvent):
                raise self._error(
                    event, _TEMPLATE if isinstance(event, yaml.MappingStartEvent) else "a key must be text"
                )
            else:
                key, is_merge = event.value, event.value == "<<" and event.implicit[0]
                if event.implicit[0]:
                    key = self._key(event, _plain_value(key))
                if event.anchor is not None:
                    self._anchors[event.anchor] = self._scalar(event)
            self._keys.append(key)
            if key in fields:
                self._duplicates.append(self._error(event, "duplicate key; the last value is used"))
            value = self._value(self._next(), self._line(event))
            if is_merge:
                objects = value if isinstance(value, list) else [value]
                if not all(isinstance(base, dict) for base in objects):
                    raise self._error(event, "expected an object or a list of objects to merge")
                for base in reversed(objects):
                    merged |= base
            else:
                fields[key] = value
            self._keys.pop()
        return merged | fields if merged else fields

    def _key(self, event: _Event, value: Any) -> str:
        """A key that is no string in YAML, as text; as kubectl has it, `yes` is `true` and 0x10 is `16`."""
        if value is None:
            raise self._error(event, "a key must be text, got null")
        if isinstance(value, dict | list):
            raise self._error(event, "a key must be text")
        return str(value).lower() if isinstance(value, bool) else str(value)

    def _copied(self, value: Any, event: _Event, depth: int) -> Any:
        """The value of an alias, its own: objects are patched in place. A few lines could stand for gigabytes."""
        self._room -= 1 + len("".join(value) if isinstance(value, str | dict) else "")
        if self._room < 0:
            raise self._error(event, "its aliases repeat too much")
        if not isinstance(value, dict | list):
            return value
        self._check_depth(event, depth)
        if isinstance(value, list):
            return [self._copied(item, event, depth + 1) for item in value]
        return {key: self._copied(item, event, depth + 1) for key, item in value.items()}

    def _check_depth(self, event: _Event, depth: int) -> None:
        if depth >= DEPTH_MAX:
            raise self._error(event, f"nested too deeply, expected at most {DEPTH_MAX} levels")

    def _line(self, event: _Event) -> int:
        line = event.start_mark.line - bisect_left(self._other_breaks, event.start_mark.index)
        return self._first_line + int(line) + 1

    def _error(self, event: _Event, reason: str) -> ManifestError:
        field = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in self._keys)
        return ManifestError(self._path, self._line(event), field.removeprefix(".")[:_SHOWN_CHARACTERS], reason)


_Object: TypeAlias = tuple[_Reader, tuple[str | int, ...], Any]
"""An object's reader, its keys and indices in the reader's document, and its value."""


def _plain_value(text: str) -> Any:
    """The value of an unquoted scalar: YAML's core schema, and words and numbers of older YAML, as in kubectl.

    0644 is octal and 1_000 is 1000, but 1:30 is text. An integer of more than 64 bits becomes a float, and 80.0 is 80,
    as JSON of Go has them.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    digits = text.replace("_", "")
    if integer := _INT.fullmatch(digits):
        number = int(digits, 8 if integer["octal"] else 0)
        if _INT_MIN <= number <= _INT_MAX:
            return number
    if not (_FLOAT.fullmatch(digits) and isfinite(decimal := float(digits))):
        return text
    return int(decimal) if decimal.is_integer() and abs(decimal) <= _EXACT_FLOAT_MAX else decimal
