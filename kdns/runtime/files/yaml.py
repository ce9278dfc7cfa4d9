"""The door to PyYAML: text to documents with line numbers, as Kubernetes reads YAML and JSON, and values to text.

libyaml only makes events of text and text of events, one at a time: its own composer and serializer recurse in C as
deep as the text does, and hold the interpreter until they end. What is nested deeper than `DEPTH_MAX` is refused.

Dates stay text, keys become text, numbers are those of YAML 1.2 as kubectl reads them, and a duplicate key is an
error unless the caller collects duplicates; then the last value is used. JSON is read as YAML, after escaped surrogate
pairs are joined; a text that begins with an object of JSON may go on with others, as for kubectl.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from math import isfinite
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias

import yaml
from yaml.resolver import Resolver

from kdns.errors import ManifestError

DEPTH_MAX: Final = 200
"""The deepest nesting of objects and lists."""

_EXPANDED_SIZE_MAX = 250_000
"""How much more than twice the text its expanded aliases may hold, in nodes and characters."""

_MISTAKES_MAX = 100
"""The most mistakes of one text; then parsing stops."""

_TAG_DIRECTIVES_MAX = 100
_SHOWN_CHARACTERS = 80
_TAG = "tag:yaml.org,2002:"
_SURROGATES = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_TAG_DIRECTIVE = re.compile(r"^%TAG", re.MULTILINE)
_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_BYTE_ORDER_MARK = re.compile("^\ufeff", re.MULTILINE)
_DOCUMENT_START = re.compile(r"---(?=\s|$)")

_JSON = json.JSONDecoder()
_JSON_SPACE = re.compile(r"[ \t\r\n]*")

_TEXT_TAG = _TAG + "str"
_TEXT_TAGS = frozenset({_TEXT_TAG, _TAG + "timestamp", _TAG + "value"})
_TAGS: dict[str, tuple[type, ...]] = {
    _TAG + "int": (int,),
    _TAG + "float": (int, float),
    _TAG + "bool": (bool,),
    _TAG + "null": (NoneType,),
}
_WORDS: dict[str, bool | None] = {
    word: value
    for value, words in ((True, ("true", "yes", "on")), (False, ("false", "no", "off")), (None, ("null", "~", "")))
    for each in words
    for word in (each, each.title(), each.upper())
}
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NUMBER_STARTS = frozenset("+-.0123456789")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*|0[0-7]+|0[oO][0-7]+|0[xX][0-9a-fA-F]+|0[bB][01]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INT_CHARACTERS_MAX = 70
"""The sign, the prefix and the digits of 64 bits."""

_INT_MIN, _INT_MAX, _EXACT_FLOAT_MAX = -(2**63), 2**64 - 1, 2**53


_Event: TypeAlias = Any
"""An event of libyaml; PyYAML's types lack the fields of events."""


_tag_in_yaml_1_1: Callable[..., str] = Resolver().resolve


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file and the line (from 1) it starts at."""

    path: str
    line: int
    value: Any


def documents(path: str, text: str, repeated: list[tuple[int, str]] | None = None) -> tuple[Document, ...]:
    """Returns the objects of a file, those of lists (List, ServiceList …) one by one. ManifestError for invalid YAML.

    With `repeated`, duplicate keys are not an error: the last one is used, and line and key of each are added there.
    """
    return tuple(Document(path, node.line, value) for node, value in _expanded(path, text, repeated))


def all_documents(
    path: str, text: str, mistakes: list[ManifestError], duplicates: list[ManifestError]
) -> tuple[Document, ...]:
    """Returns the objects of a file that can be read. Every mistake in the YAML is added to the list.

    After a mistake, the text is read on at the next `---`. Duplicate keys are added to `duplicates`; the last one is
    used.
    """
    nodes = _expanded(path, text, None, mistakes, duplicates)
    return tuple(Document(path, node.line, value) for node, value in nodes)


def first_document(
    path: str, text: str, mistakes: list[ManifestError], duplicates: list[ManifestError]
) -> tuple[Document | None, int]:
    """Returns the first object as `all_documents` does, and the line where another one follows; 0 if none does.

    What follows may be anything: its mistakes are not added.
    """
    nodes = _expanded(path, text, None, mistakes, duplicates)
    document = next((Document(path, node.line, value) for node, value in nodes), None)
    known = len(mistakes), len(duplicates)
    following = next((node.line for node, _ in nodes), 0) or max(
        (each.line for each in mistakes[known[0] :]), default=0
    )
    del mistakes[known[0] :], duplicates[known[1] :]
    return document, following


def dumped(value: Any, *, sort_keys: bool = False) -> str:
    """Returns the JSON value as one YAML document, in block style."""
    text = StringIO()
    emitter = yaml.CSafeDumper(text, allow_unicode=True)
    emitter.emit(yaml.StreamStartEvent())
    emitter.emit(yaml.DocumentStartEvent(explicit=False))
    _emit(emitter.emit, value, sort_keys=sort_keys)
    emitter.emit(yaml.DocumentEndEvent(explicit=False))
    emitter.emit(yaml.StreamEndEvent())
    return text.getvalue()


def _emit(emit: Callable[[_Event], None], value: Any, *, sort_keys: bool) -> None:
    match value:
        case dict():
            emit(yaml.MappingStartEvent(None, None, True, flow_style=not value))
            for key, item in sorted(value.items()) if sort_keys else value.items():
                _emit(emit, key, sort_keys=sort_keys)
                _emit(emit, item, sort_keys=sort_keys)
            emit(yaml.MappingEndEvent())
        case list() | tuple():
            emit(yaml.SequenceStartEvent(None, None, True, flow_style=not value))
            for item in value:
                _emit(emit, item, sort_keys=sort_keys)
            emit(yaml.SequenceEndEvent())
        case str():
            emit(yaml.ScalarEvent(None, None, (_reads_as_text(value), True), value))
        case _:
            text = json.dumps(value)
            shown = text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text
            emit(yaml.ScalarEvent(None, None, (True, False), shown))


def _reads_as_text(text: str) -> bool:
    """Returns whether a text needs no quotes, here and where YAML 1.1 is read, as by PyYAML."""
    return isinstance(_plain_value(text), str) and _tag_in_yaml_1_1(yaml.ScalarNode, text, (True, False)) == _TEXT_TAG


def field_line(path: str, text: str, object_line: int, field: str) -> int:
    """Returns the line of `spec.ports[0].port` in the object at `object_line`, or of its deepest existing parent."""
    return field_lines(path, text, [(object_line, field)])[object_line, field]


def field_lines(path: str, text: str, fields: Iterable[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """Returns the line of each of these fields, given with the line of its object, in one pass: see `field_line`.

    A field in brackets may be a key with dots, such as `metadata.labels[example.com/name]`.
    """
    found = {(line, field): line for line, field in fields}
    wanted: dict[int, list[str]] = {}
    for line, field in found:
        wanted.setdefault(line, []).append(field)
    for node, _ in _expanded(path, text, None, [], []) if any(field for _, field in found) else ():
        for field in wanted.pop(node.line, ()):
            found[node.line, field] = _deepest(node, field)[0]
    return found


def block_line(path: str, text: str, object_line: int, field: str) -> int | None:
    """Returns the first line of the text of a literal block scalar (`|`); None for a field in another style."""
    for node, _ in _expanded(path, text, None, [], []):
        if node.line == object_line:
            _, rest, found = _deepest(node, field)
            return found.line + 1 if found.is_literal and not rest else None
    return None


class _Node(NamedTuple):
    """A value with its line (from 1). `text` is a scalar as it is written, None for objects and lists.

    `parts` have line, key and node of each field, or of each item with its index as the key. `size` is the number of
    nodes and characters, aliases expanded, and `height` the number of levels of objects and lists. `is_literal` says
    that it is a literal block, whose lines are lines of the file.
    """

    line: int
    value: Any
    text: str | None = None
    parts: tuple[tuple[int, str, _Node], ...] = ()
    size: int = 1
    height: int = 0
    is_literal: bool = False


def _deepest(node: _Node, field: str) -> tuple[int, str, _Node]:
    """Returns the line of the deepest part of a path that exists, the remaining path, and the part's node."""
    line, rest = node.line, field
    while rest:
        if rest.startswith("["):
            name, _, behind = rest[1:].partition("]")
            known = [part for part in node.parts if part[1] == name]
        else:
            rest = behind = rest.removeprefix(".")
            known = [part for part in node.parts if rest == part[1] or rest.startswith((f"{part[1]}.", f"{part[1]}["))]
        if not known:
            break
        line, name, node = max(reversed(known), key=lambda part: len(part[1]))  # of duplicates the last one
        rest = behind if rest.startswith("[") else behind[len(name) :]
    return line, rest, node


def _expanded(
    path: str,
    text: str,
    repeated: list[tuple[int, str]] | None = None,
    mistakes: list[ManifestError] | None = None,
    duplicates: list[ManifestError] | None = None,
) -> Iterator[tuple[_Node, Any]]:
    for node in _all_roots(path, text, repeated, mistakes, duplicates):
        value = node.value
        if not (isinstance(value, dict) and str(value.get("kind", "")).endswith("List") and "items" in value):
            yield node, value
            continue
        items = next(child for _, key, child in reversed(node.parts) if key == "items")
        if not isinstance(items.value, list):
            error = ManifestError(path, items.line, "items", "expected a list of objects")
            if mistakes is None:
                raise error
            mistakes.append(error)
            continue
        item_kind = value["kind"].removesuffix("List")
        given = {"apiVersion": value.get("apiVersion"), "kind": item_kind} if item_kind else {}
        for _, _, child in items.parts:
            yield child, given | child.value if isinstance(child.value, dict) else child.value


def _all_roots(
    path: str,
    text: str,
    repeated: list[tuple[int, str]] | None,
    mistakes: list[ManifestError] | None,
    duplicates: list[ManifestError] | None,
) -> Iterator[_Node]:
    """Yields the documents of YAML, or of the objects of JSON that follow each other."""
    for first_line, part in _parts(_BYTE_ORDER_MARK.sub("", text)):
        if mistakes is None:
            yield from _roots(path, part, repeated, first_line)
        else:
            yield from _readable_roots(path, part, mistakes, duplicates, first_line)


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """Yields each object of a text of JSON objects, any other text whole, with the number of the lines before it."""
    begin, following, first_line = 0, _JSON_SPACE.match(text), 0
    while following and text.startswith("{", following.end()):
        try:
            _, end = _JSON.raw_decode(text, following.end())
        except (ValueError, RecursionError):  # YAML in flow style, or a mistake
            break
        following = _JSON_SPACE.match(text, end)
        if following and text.startswith("{", following.end()):
            yield first_line, text[begin:end]
            first_line += text.count("\n", begin, end)
            begin = end
    yield first_line, text[begin:]


def _readable_roots(
    path: str, text: str, mistakes: list[ManifestError], duplicates: list[ManifestError] | None, skipped: int
) -> Iterator[_Node]:
    """Yields the documents that can be read; mistakes in others are added to the list."""
    lines: list[str] = [""] * skipped
    most = len(mistakes) + _MISTAKES_MAX
    while len(mistakes) < most:
        composer = _Composer(path, text, None, skipped, duplicates)
        try:
            yield from _composed(path, text, composer)
        except ManifestError as error:
            mistakes.append(error)
            if not error.line:
                return
            lines = lines if lines[skipped:] else [*lines, *_LINE_BREAK.split(text)]
            after = max(error.line - 1, composer.document_line)
            following = (number for number in range(after, len(lines)) if _DOCUMENT_START.match(lines[number]))
            skipped = next(following, len(lines))
            text = "\n".join(lines[skipped:])
        else:
            return
    mistakes.append(ManifestError(path, 0, "", f"there are more than {_MISTAKES_MAX} mistakes in the YAML"))


def _roots(path: str, text: str, repeated: list[tuple[int, str]] | None, first_line: int) -> Iterator[_Node]:
    """Yields the documents that are not null."""
    yield from _composed(path, text, _Composer(path, text, repeated, first_line))


def _composed(path: str, text: str, composer: _Composer) -> Iterator[_Node]:
    if sum(1 for _ in _TAG_DIRECTIVE.finditer(text)) > _TAG_DIRECTIVES_MAX:  # libyaml compares each with all before
        raise ManifestError(path, 0, "", f"not YAML: expected at most {_TAG_DIRECTIVES_MAX} %TAG directives")
    try:
        yield from (node for node in composer.documents() if node.value is not None)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        line = composer.first_line + min(mark.line + 1, len(text.splitlines())) if mark else 0
        raise ManifestError(path, line, "", f"not YAML: {reason}") from error
    except yaml.YAMLError as error:
        raise ManifestError(path, 0, "", f"not YAML: {' '.join(str(error).split())}") from error


class _Composer:
    """Nodes of the events of one text. The recursion of its methods is bounded by `DEPTH_MAX`.

    The text begins after `first_line` lines of its file, and `document_line` is where the last document began.
    Duplicate keys are added to `repeated` or to `duplicates`, else they are an error.
    """

    def __init__(
        self,
        path: str,
        text: str,
        repeated: list[tuple[int, str]] | None,
        first_line: int = 0,
        duplicates: list[ManifestError] | None = None,
    ) -> None:
        self._path, self._repeated, self._duplicates = path, repeated, duplicates
        self.first_line, self.document_line = first_line, first_line + 1
        if path.endswith(".json"):
            text = _joined_surrogates(text)
        self._events: Iterator[_Event] = yaml.parse(text, Loader=yaml.CSafeLoader)
        self._room = 2 * len(text) + _EXPANDED_SIZE_MAX
        self._anchors: dict[str, _Node | None] = {}
        self._names: list[str] = []

    def documents(self) -> Iterator[_Node]:
        """Yields the root of each document."""
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                self.document_line = self._line(event)
                yield self._node(next(self._events))

    def _node(self, event: _Event) -> _Node:
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        else:
            line = self._line(event)
            self._check_depth(line, 1)
            node = self._sequence(line) if isinstance(event, yaml.SequenceStartEvent) else self._mapping(line)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _aliased(self, event: _Event) -> _Node:
        """Returns a copy of the anchor's node; a few lines of nested aliases can stand for gigabytes."""
        line, name = self._line(event), event.anchor[:_SHOWN_CHARACTERS]
        if event.anchor not in self._anchors:
            raise self._error(line, f"not YAML: found undefined alias {name!r}")
        node = self._anchors[event.anchor]
        if node is None:
            raise self._error(line, f"alias {name!r} contains itself")
        self._check_depth(line, node.height)
        self._room -= node.size
        if self._room < 0:
            raise self._error(line, "its aliases repeat too much")
        return _copied(node)

    def _check_depth(self, line: int, height: int) -> None:
        if len(self._names) + height > DEPTH_MAX:
            raise self._error(line, f"nested too deeply, expected at most {DEPTH_MAX} levels")

    def _scalar(self, event: _Event) -> _Node:
        text: str = event.value
        if event.tag is not None and event.tag != "!":
            value = self._tagged(event)
        elif not event.implicit[0]:
            value = text
        elif _NOT_FINITE.fullmatch(text):
            raise self._error(self._line(event), f"{text} has no counterpart in JSON")
        else:
            value = _plain_value(text)
        return _Node(self._line(event), value, text, (), 1 + len(text), is_literal=event.style == "|")

    def _tagged(self, event: _Event) -> Any:
        if event.tag in _TEXT_TAGS:
            return event.value
        wanted = _TAGS.get(event.tag)
        if wanted is None:
            raise self._error(self._line(event), f"{event.tag[:_SHOWN_CHARACTERS]} has no counterpart in JSON")
        value = _plain_value(event.value)
        if type(value) not in wanted:
            shown = event.value[:_SHOWN_CHARACTERS]
            raise self._error(self._line(event), f"cannot read {shown!r} as {event.tag.removeprefix(_TAG)}")
        return value

    def _sequence(self, line: int) -> _Node:
        parts: list[tuple[int, str, _Node]] = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            name = str(len(parts))
            self._names.append(f"[{name}]")
            node = self._node(event)
            self._names.pop()
            parts.append((node.line, name, node))
        return _collection(line, [node.value for _, _, node in parts], parts)

    def _mapping(self, line: int) -> _Node:
        parts: list[tuple[int, str, _Node]] = []
        merged: list[tuple[int, str, _Node]] = []
        keys: set[str] = set()
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key_line, key = self._key(event, keys)
            is_merge = isinstance(event, yaml.ScalarEvent) and key == "<<" and event.implicit[0]
            self._names.append(f".{key}")
            node = self._node(next(self._events))
            if is_merge:
                merged = self._merged(node)
            else:
                parts.append((key_line, key, node))
            self._names.pop()
        parts = [*merged, *parts]
        return _collection(line, {key: node.value for _, key, node in parts}, parts)

    def _key(self, event: _Event, keys: set[str]) -> tuple[int, str]:
        """Returns line and text of a key, and adds it to `keys`."""
        line = self._line(event)
        key: str | None = None
        if isinstance(event, yaml.ScalarEvent) and event.anchor is None:
            key = event.value
        elif isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
            key = self._node(event).text
        if key is None:
            raise self._error(line, "a key must be text")
        if key in keys:
            if self._repeated is not None:
                self._repeated.append((line, key))
            elif self._duplicates is not None:
                self._duplicates.append(self._error(line, "duplicate key; the last value is used", key))
            else:
                raise self._error(line, "duplicate key", key)
        keys.add(key)
        return line, key

    def _merged(self, node: _Node) -> list[tuple[int, str, _Node]]:
        """Returns the fields of a merge key `<<`: an object or a list of objects; earlier ones take precedence."""
        objects = [part for _, _, part in node.parts] if isinstance(node.value, list) else [node]
        if not all(isinstance(each.value, dict) for each in objects):
            raise self._error(node.line, "expected an object or a list of objects to merge")
        return [part for each in reversed(objects) for part in each.parts]

    def _line(self, event: _Event) -> int:
        return self.first_line + int(event.start_mark.line) + 1

    def _error(self, line: int, reason: str, name: str = "") -> ManifestError:
        field = "".join([*self._names, f".{name}" if name else ""]).removeprefix(".")
        return ManifestError(self._path, line, field[:_SHOWN_CHARACTERS], reason)


def _collection(line: int, value: Any, parts: list[tuple[int, str, _Node]]) -> _Node:
    size = 1 + sum(1 + len(name) + node.size for _, name, node in parts)
    height = 1 + max((node.height for _, _, node in parts), default=0)
    return _Node(line, value, None, tuple(parts), size, height)


def _copied(node: _Node) -> _Node:
    """Returns the node with a value of its own: objects that are patched in place must not be shared."""
    if node.text is not None:
        return node
    parts = tuple((line, name, _copied(part)) for line, name, part in node.parts)
    values = [part.value for _, _, part in parts]
    value = values if isinstance(node.value, list) else dict(zip((name for _, name, _ in parts), values, strict=True))
    return node._replace(value=value, parts=parts)


def _plain_value(text: str) -> Any:
    """Returns the value of an unquoted scalar: YAML's core schema, and words and numbers of older YAML in kubectl.

    0644 is octal and 1_000 is 1000, but 1:30 is text. An integer of more than 64 bits becomes a float, and 80.0 is 80,
    as JSON of Go has them.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    digits = text.replace("_", "")
    if len(digits) <= _INT_CHARACTERS_MAX and _INT.fullmatch(digits):
        sign, magnitude = -1 if digits[0] == "-" else 1, digits.lstrip("+-")
        is_octal = len(magnitude) > 1 and magnitude[0] == "0" and magnitude.isdigit()
        integer = sign * int(magnitude, 8 if is_octal else 0)
        if _INT_MIN <= integer <= _INT_MAX:
            return integer
    if not (_FLOAT.fullmatch(digits) and isfinite(number := float(digits))):
        return text
    return int(number) if number.is_integer() and abs(number) <= _EXACT_FLOAT_MAX else number


def _joined_surrogates(text: str) -> str:
    return _SURROGATES.sub(
        lambda match: match[1] + bytes.fromhex(match[2] + match[3]).decode("utf-16-be"),
        text,
    )
