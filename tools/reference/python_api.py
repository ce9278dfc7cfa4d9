"""The modules that other programs may import, from their `__all__`, signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import msgspec

PUBLIC: Final = ("kdns.testing", "kdns.records", "kdns.env", "kdns.cluster.objects", "kdns.errors")
"""Modules whose `__all__` changes with the major version only (docs/python.md)."""


class _Annotation:
    """The text of an annotation, which `inspect.Signature` shows without quotes."""

    def __init__(self, text: Any) -> None:
        self._text = text

    def __repr__(self) -> str:
        return str(self._text)


def page() -> str:
    """Returns the page of all public modules."""
    head = "[In Python and in tests](../python.md) shows how they are used.\nAll other modules are internal."
    return "\n".join(("# Python API", "", head, *(line for name in PUBLIC for line in _module(name)), ""))


def _module(name: str) -> Iterator[str]:
    module = import_module(name)
    yield from ("", f"## {name}", "", *_prose(_paragraphs(module)[0]))
    for each in module.__all__:
        yield from ("", f"### {each}", "")
        yield from _member(module, each)


def _member(module: ModuleType, name: str) -> Iterator[str]:
    value = getattr(module, name)
    if inspect.isfunction(value):
        yield from (*_code(_signature(name, value)), *_documentation(value))
    elif inspect.isclass(value):
        yield from _documentation(value)
        yield from _fields(value)
        for method, function in vars(value).items():
            if not method.startswith("_") and inspect.isfunction(function):
                yield from ("", *_code(_signature(method, function)), *_documentation(function))
    else:
        yield f"`{_assigned(module, name)}`"


def _assigned(module: ModuleType, name: str) -> str:
    """Returns the source of a constant or of an alias."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if name in map(ast.unparse, targets):
                return ast.unparse(node.value)
    raise LookupError(f"{module.__name__}.{name}: expected an assignment")


def _fields(kind: type) -> Iterator[str]:
    if not (issubclass(kind, msgspec.Struct) or is_dataclass(kind)):
        return
    hints = inspect.get_annotations(kind)
    if hints:
        yield from ("", "| field | type |", "|---|---|")
        yield from (f"| `{name}` | `{str(text).replace('|', chr(92) + '|')}` |" for name, text in hints.items())


def _signature(name: str, function: Any) -> str:
    given = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=_Annotation(parameter.annotation)) for parameter in given.parameters.values()
    ]
    shown = [parameter for parameter in parameters if parameter.name != "self"]
    return f"{name}{inspect.Signature(shown, return_annotation=_Annotation(given.return_annotation))}"


def _documentation(value: Any) -> Iterator[str]:
    for index, paragraph in enumerate(_paragraphs(value)):
        yield from (("",) if index else ())
        yield from _prose(paragraph)


def _paragraphs(value: Any) -> list[str]:
    return (inspect.getdoc(value) or "").split("\n\n")


def _prose(paragraph: str) -> Iterator[str]:
    """Yields the sentences; lines of an example, which are indented or follow a `with`, stay as they are."""
    lines = paragraph.splitlines()
    if any(line.startswith((" ", "with ")) for line in lines):
        yield from _code(paragraph)
    else:
        yield from " ".join(lines).replace(". ", ".\n").split("\n")


def _code(text: str) -> tuple[str, ...]:
    return ("```text", text, "```", "")
