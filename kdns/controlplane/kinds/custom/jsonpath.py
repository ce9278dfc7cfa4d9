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
"""The values that a step selects of a value."""

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
    """The braces around a path are optional. Raises ValueError for unsupported syntax."""
    text = path.strip()
    text = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    if text and text[0] not in ".[":
        raise ValueError("must begin with a dot")
    selected: list[Step] = []
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"unsupported at {text[position:]!r}")
        selected.append(_step(token))
        position = token.end()
    return tuple(selected)


def _step(token: re.Match[str]) -> Step:
    parts = token.groupdict()
    if parts["index"] is not None:
        index = int(parts["index"])
        return partial(_elements, index, index + 1 or None, 1)
    if parts["slice"]:
        first_index, end, stride = (int(text) if text else None for text in f"{parts['slice']}::".split(":")[:3])
        return partial(_elements, first_index, end, stride or 1)
    if parts["field"]:
        is_true = _SIGNS[parts["sign"]] if parts["sign"] else _is_present
        return _filter(steps(f".{parts['field']}"), is_true, _literal(parts["value"] or "null"))
    name = re.sub(r"\\(.)", r"\1", parts["name"] or parts["quoted"] or "")
    if parts["all"] or name == "*":
        return lambda value: value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return lambda value: (value[name],) if isinstance(value, dict) and name in value else ()


def _is_present(value: Any, _operand: Any) -> bool:
    return value is not None


def _elements(first_index: int | None, end: int | None, stride: int, value: Any) -> Iterable[Any]:
    """Raises IndexError for bounds outside of the list, as client-go does (evalArray); Python's slices would clip
    them.
    """
    if not isinstance(value, list):
        return ()
    length = len(value)
    bounds = (first_index or 0, length if end is None else end)
    low, high = (bound + length if bound < 0 else bound for bound in bounds)
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


def _filter(field: tuple[Step, ...], is_true: Callable[[Any, Any], bool], operand: Any) -> Step:
    def selected(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            actual = next(iter(_walk(field, item)), None)
            try:
                if is_true(actual, operand):
                    yield item
            except TypeError:  # values that have no order
                continue

    return selected


def _walk(path: tuple[Step, ...], value: Any) -> Iterable[Any]:
    values: Iterable[Any] = (value,)
    for step in path:
        values = [selected for value in values for selected in step(value)]
    return values


def first(path: str, obj: Any) -> Any:
    """The first value at a path. None for an unsupported path, and for a missing value or index."""
    try:
        return next(iter(_walk(steps(path), obj)), None)
    except (IndexError, ValueError):
        return None


def is_supported(path: str) -> bool:
    try:
        steps(path)
    except ValueError:
        return False
    return True


_FIELDS: Final = re.compile(r"(?:\.[A-Za-z_][A-Za-z0-9_-]*)+")


def field_names(path: str) -> list[str]:
    """The names of a path of fields only, such as `.spec.replicas`; empty for any other path."""
    return path.split(".")[1:] if _FIELDS.fullmatch(path) else []
