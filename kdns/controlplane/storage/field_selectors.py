"""Field selectors: `status.phase=Running,metadata.name!=a`, on the fields that a kind allows.

Each kind's strategy lists its fields (Kubernetes documentation, "Field Selectors", list of supported fields).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from kdns.controlplane.apimachinery.errors import bad_request
from kdns.controlplane.apimachinery.kinds import Json

Getter: TypeAlias = Callable[[Json], str]


def _at(path: tuple[str, ...], obj: Json) -> str:
    value: Any = obj
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def fields(*paths: str) -> dict[str, Getter]:
    """Getters by path: the value as text, or "" if it is absent."""
    return {path: partial(_at, tuple(path.split("."))) for path in paths}


def flag(path: str) -> Getter:
    """A boolean, false if it is absent."""
    return lambda obj: _at(tuple(path.split(".")), obj) or "false"


def count(path: str) -> Getter:
    """A number, 0 if it is absent."""
    return lambda obj: _at(tuple(path.split(".")), obj) or "0"


def no_value(_obj: Json) -> str:
    """For fields that a selector may name but that no object has, such as status.podIPs."""
    return ""


def component_of(event: Json) -> str:
    """`source` of an Event selects by the component that reported it."""
    return _at(("source", "component"), event) or _at(("reportingComponent",), event)


@dataclass(frozen=True, slots=True)
class FieldLabels:
    """The fields of a kind that a selector may name; `refusal` is the error for any other, whose name replaces {}."""

    getters: Mapping[str, Getter]
    refusal: str = "field label not supported: {}"


OBJECT_META = FieldLabels(
    fields("metadata.name", "metadata.namespace"),
    '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"',
)
"""The default: kinds without selectable fields of their own."""


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One field compared with one text."""

    getter: Getter
    equal: bool
    value: str


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All terms must hold; none selects everything.

    `name` is compared with the object's key, which needs no decoding; "" for any.
    """

    terms: tuple[FieldTerm, ...] = ()
    name: str = ""

    def matches(self, obj: Json) -> bool:
        """An absent field reads as ""."""
        return all((term.getter(obj) == term.value) == term.equal for term in self.terms)


EVERYTHING = FieldSelector()

_TERM = re.compile(r"(?P<field>[^=!\\,]*)(?P<sign>==|!=|=)(?P<value>.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(?P<escaped>.?)|=", re.DOTALL)


def parse(labels: FieldLabels, text: str) -> FieldSelector:
    """Blank text selects everything.

    Raises StatusError 400 for a text that cannot be parsed and for a field that is not among `labels`.
    """
    if not text:
        return EVERYTHING
    terms, name = [], ""
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        match = _TERM.fullmatch(part)
        if not match:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        getter = labels.getters.get(match["field"])
        if getter is None:
            raise bad_request(labels.refusal.format(match["field"]))
        value = _ESCAPED.sub(_unescaped, match["value"])
        if match["field"] == "metadata.name" and match["sign"] != "!=" and value and not name:
            name = value
        else:
            terms.append(FieldTerm(getter, match["sign"] != "!=", value))
    return FieldSelector(tuple(terms), name)


def _unescaped(match: re.Match[str]) -> str:
    letter = match["escaped"]
    if letter is None:
        raise bad_request(f"invalid field selector: unescaped character in value: {ord('=')}")
    if letter not in {",", "=", "\\"}:
        raise bad_request(f"invalid field selector: invalid escape sequence: {match[0]}")
    return letter
