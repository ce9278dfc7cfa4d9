"""Defaults of fields as rows of path and value, and the walk that fills them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from kdns.controlplane.apimachinery.kinds import Json


class _Tree(dict[str, Any]):
    """The rows below one field: a value is a default, a further tree has the rows of its fields."""


def without_nulls(fields: Json | None) -> Json:
    """A client that sends null means that the field is not set."""
    return {key: value for key, value in (fields or {}).items() if value is not None}


def below(parent: str, rows: Mapping[str, object]) -> dict[str, object]:
    return {f"{parent}.{path}": value for path, value in rows.items()}


def filler(rows: Mapping[str, object]) -> Callable[[Json], Json]:
    """A function that copies an object and sets the defaults of fields that are absent or null.

    Paths such as `spec.ports.protocol` lead through lists. Nothing is set below a field that is absent.
    """
    root = _Tree()
    for path, value in rows.items():
        *parents, name = path.split(".")
        tree = root
        for parent in parents:
            tree = tree.setdefault(parent, _Tree())
        tree[name] = value
    return lambda obj: _filled(root, obj)


def _filled(tree: _Tree, value: Any) -> Any:
    if isinstance(value, list):
        return [_filled(tree, item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {name: part for name, part in value.items() if part is not None}
    for name, default in tree.items():
        if isinstance(default, _Tree):
            if name in result:
                result[name] = _filled(default, result[name])
        elif name not in result:
            result[name] = deepcopy(default) if isinstance(default, dict | list) else default
    return result
