"""The door to PyYAML: text to documents with line numbers, as Kubernetes reads YAML and JSON, and values to text.

Unlike with PyYAML's safe loader, dates stay text, keys become text, and a duplicate key is an error, as in kubectl,
unless the caller collects duplicates. JSON is read as YAML, after escaped surrogate pairs are joined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from kdns.errors import ManifestError

_TAG = "tag:yaml.org,2002:"
_TEXT = {_TAG + "str", _TAG + "timestamp", _TAG + "value"}
_SCALARS = {_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"}
_ALIASED_SIZE_MAX = 1_000_000
_MERGE = _TAG + "merge"
_SURROGATES = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file and the line (from 1) it starts at."""

    path: str
    line: int
    value: Any


def documents(path: str, text: str, repeated: list[tuple[int, str]] | None = None) -> tuple[Document, ...]:
    """The objects of a file, those of lists (List, ServiceList …) one by one. ManifestError for invalid YAML.

    With `repeated`, duplicate keys are no error: the last one counts, and line and key of each are added there.
    """
    found = _expanded(path, _joined_surrogates(path, text), repeated)
    return tuple(Document(path, _line(node), value) for node, value in found)


def dumped(value: Any, *, sort_keys: bool = False) -> str:
    """The value as one YAML document, in block style."""
    text: str = yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=sort_keys, allow_unicode=True)
    return text


def field_line(path: str, text: str, object_line: int, field: str) -> int:
    """The line of `spec.ports[0].port` in the object at `object_line`, or of its deepest existing parent."""
    for node, _ in _expanded(path, _joined_surrogates(path, text)):
        if _line(node) == object_line:
            return _line_within(node, re.findall(r"[^.\[\]]+", field))
    return object_line


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _line_within(node: yaml.Node, parts: list[str]) -> int:
    line = _line(node)
    for part in parts:
        if isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = _line(node)
            continue
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        found = [(key, value) for key, value in pairs if key.value == part]
        if not found:
            break
        line, node = _line(found[0][0]), found[0][1]
    return line


def _expanded(path: str, text: str, repeated: list[tuple[int, str]] | None = None) -> Iterator[tuple[yaml.Node, Any]]:
    for node, value in _roots(path, text, repeated):
        if not (isinstance(value, dict) and str(value.get("kind", "")).endswith("List") and "items" in value):
            yield node, value
            continue
        items = next(child for key, child in node.value if key.value == "items")
        if not isinstance(items, yaml.SequenceNode):
            raise ManifestError(path, _line(items), "items", "wanted a list of objects")
        item_kind = value["kind"].removesuffix("List")
        given = {"apiVersion": value.get("apiVersion"), "kind": item_kind} if item_kind else {}
        for child, item in zip(items.value, value["items"], strict=True):
            yield child, given | item if isinstance(item, dict) else item


class _Loader(yaml.CSafeLoader):
    """PyYAML's safe loader, with a list for duplicate keys."""

    repeated: list[tuple[int, str]] | None = None


def _roots(path: str, text: str, repeated: list[tuple[int, str]] | None) -> Iterator[tuple[yaml.Node, Any]]:
    try:
        loader = _Loader(text)
        loader.repeated = repeated
        try:
            while loader.check_node():
                node = loader.get_node()
                if node is not None and _expanded_size(node, {}) > 2 * len(text) + _ALIASED_SIZE_MAX:
                    raise ManifestError(path, _line(node), "", "its aliases repeat too much")
                if node is not None and (value := _value(path, loader, node, "")) is not None:
                    yield node, value
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        line = min(mark.line + 1, len(text.splitlines())) if mark else 0
        raise ManifestError(path, line, "", f"not YAML: {reason}") from error
    except yaml.YAMLError as error:
        raise ManifestError(path, 0, "", f"not YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise ManifestError(path, 0, "", "nested too deeply, or an alias that holds itself") from None


def _expanded_size(node: yaml.Node, known: dict[int, int]) -> int:
    """Nodes and characters of scalars, aliases expanded: a few lines of nested aliases can stand for gigabytes."""
    size = known.get(id(node))
    if size is None:
        match node:
            case yaml.SequenceNode():
                size = 1 + sum(_expanded_size(child, known) for child in node.value)
            case yaml.MappingNode():
                size = 1 + sum(_expanded_size(child, known) for pair in node.value for child in pair)
            case _:
                size = 1 + len(node.value)
        known[id(node)] = size
    return size


def _value(path: str, loader: _Loader, node: yaml.Node, field: str) -> Any:
    match node:
        case yaml.ScalarNode() if node.tag in _TEXT:
            return node.value
        case yaml.ScalarNode() if node.tag in _SCALARS:
            return _scalar(path, loader, node, field)
        case yaml.SequenceNode():
            return [_value(path, loader, item, f"{field}[{index}]") for index, item in enumerate(node.value)]
        case yaml.MappingNode():
            return _mapping(path, loader, node, field)
        case _:
            raise ManifestError(path, _line(node), field, f"{node.tag} has no counterpart in JSON")


def _scalar(path: str, loader: _Loader, node: yaml.ScalarNode, field: str) -> Any:
    try:
        return loader.construct_object(node)
    except ValueError as error:
        raise ManifestError(path, _line(node), field, f"cannot read {node.value!r}: {error}") from error


def _mapping(path: str, loader: _Loader, node: yaml.MappingNode, field: str) -> dict[str, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise ManifestError(path, _line(key), field, "a key must be text")
        if key.value in seen:
            if loader.repeated is None:
                raise ManifestError(path, _line(key), f"{field}.{key.value}".lstrip("."), "given twice")
            loader.repeated.append((_line(key), key.value))
        seen.add(key.value)
    if any(key.tag == _MERGE for key, _ in node.value):
        loader.flatten_mapping(node)
    return {key.value: _value(path, loader, child, f"{field}.{key.value}".lstrip(".")) for key, child in node.value}


def _joined_surrogates(path: str, text: str) -> str:
    if not path.endswith(".json"):
        return text
    return _SURROGATES.sub(
        lambda match: match[1] + bytes.fromhex(match[2] + match[3]).decode("utf-16-be"),
        text,
    )
