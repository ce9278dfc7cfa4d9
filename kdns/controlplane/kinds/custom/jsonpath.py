"""The JSONPath of columns, scale and selectable fields, such as `.status.conditions[?(@.type=="Ready")].status`.

(Kubernetes documentation, "JSONPath Support"; kube-apiserver reads columns with k8s.io/client-go/util/jsonpath.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

Step: TypeAlias = Callable[[Any], Iterable[Any]]
"""A value → the values that the step selects of it."""

_TOKEN: Final = re.compile(
    r"""\.(?P<name>(?:[^.\[\\]|\\.)+)"""
    r"""|\[\s*'(?P<quoted>(?:[^'\\]|\\.)*)'\s*\]"""
    r"""|\[\s*(?P<index>-?[0-9]+)\s*\]"""
    r"""|\[\s*(?P<slice>-?[0-9]*:-?[0-9]*(?::[1-9][0-9]*)?)\s*\]"""
    r"""|(?P<all>\[\s*\*\s*\])"""
    r"""|\[\s*\?\(\s*@\.(?P<field>[\w.-]+)\s*(?:(?P<sign>==|!=|<=|>=|<|>)\s*(?P<value>"[^"]*"|'[^']*'|[^\s)]+)\s*)?\)\s*\]"""
)
_SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": lambda one, other: bool(one == other),
    "!=": lambda one, other: bool(one != other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
}


@lru_cache(maxsize=4096)
def steps(path: str) -> tuple[Step, ...]:
    """Returns the steps of a path with or without its braces. Raises ValueError for what is not supported."""
    text = path.strip()
    text = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    if text and text[0] not in ".[":
        raise ValueError("must begin with a dot")
    found: list[Step] = []
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"unsupported at {text[position:]!r}")
        found.append(_step(token))
        position = token.end()
    return tuple(found)


def _step(token: re.Match[str]) -> Step:
    parts = token.groupdict()
    if parts["index"] is not None:
        index = int(parts["index"])
        return partial(_elements, index, index + 1 or None, 1)
    if parts["slice"]:
        first_index, end, stride = (int(each) if each else None for each in f"{parts['slice']}::".split(":")[:3])
        return partial(_elements, first_index, end, stride or 1)
    if parts["field"]:
        wanted = _SIGNS[parts["sign"]] if parts["sign"] else _is_present
        return _filter(steps(f".{parts['field']}"), wanted, _literal(parts["value"] or "null"))
    name = re.sub(r"\\(.)", r"\1", parts["name"] or parts["quoted"] or "")
    if parts["all"] or name == "*":
        return lambda value: value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return lambda value: (value[name],) if isinstance(value, dict) and name in value else ()


def _is_present(value: Any, _wanted: Any) -> bool:
    return value is not None


def _elements(first_index: int | None, end: int | None, stride: int, value: Any) -> Iterable[Any]:
    """Returns elements of a list. Raises IndexError for bounds outside of it, which Python's slices would move inside.

    (client-go, evalArray.)
    """
    if not isinstance(value, list):
        return ()
    length = len(value)
    low, high = (each + length if each < 0 else each for each in (first_index or 0, length if end is None else end))
    if low != high and not (0 <= low < length and low < high <= length):
        raise IndexError(f"{low}:{high} of {length}")
    return value[low:high:stride]


def _literal(text: str) -> Any:
    if text[0] in "\"'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _filter(field: tuple[Step, ...], is_wanted: Callable[[Any, Any], bool], wanted: Any) -> Step:
    def selected(value: Any) -> Iterator[Any]:
        for each in value if isinstance(value, list) else ():
            found = next(iter(_walk(field, each)), None)
            try:
                if is_wanted(found, wanted):
                    yield each
            except TypeError:  # values that have no order
                continue

    return selected


def _walk(path: tuple[Step, ...], value: Any) -> Iterable[Any]:
    values: Iterable[Any] = (value,)
    for step in path:
        values = [below for each in values for below in step(each)]
    return values


def first(path: str, obj: Any) -> Any:
    """Returns the first value at a path; None if there is none, as for an index that a list does not have, or if the
    path is not supported.
    """
    try:
        return next(iter(_walk(steps(path), obj)), None)
    except (IndexError, ValueError):
        return None


def is_supported(path: str) -> bool:
    """Returns whether `first` can find the values of a path."""
    try:
        steps(path)
    except ValueError:
        return False
    return True


_FIELDS: Final = re.compile(r"(?:\.[A-Za-z_][A-Za-z0-9_-]*)+")


def field_names(path: str) -> list[str]:
    """Returns the names of a path of fields only, such as `.spec.replicas`; an empty list for any other path."""
    return path.split(".")[1:] if _FIELDS.fullmatch(path) else []
