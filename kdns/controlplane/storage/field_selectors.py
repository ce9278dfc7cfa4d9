"""Field selectors: `status.phase=Running,metadata.name!=a` on the fields that a kind allows.

Which fields: Kubernetes documentation, "Field Selectors", list of supported fields; they are in each kind's strategy.
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
    """Returns a getter for each path: the value as text, or "" if it is absent."""
    return {path: partial(_at, tuple(path.split("."))) for path in paths}


def flag(path: str) -> Getter:
    """Returns a boolean, false if it is absent."""
    return lambda obj: _at(tuple(path.split(".")), obj) or "false"


def count(path: str) -> Getter:
    """Returns a number, 0 if it is absent."""
    return lambda obj: _at(tuple(path.split(".")), obj) or "0"


def no_value(_obj: Json) -> str:
    """Returns the value of a field that may be named but is never set, such as status.podIPs."""
    return ""


def component_of(event: Json) -> str:
    """Returns `source` of an Event: the component that reported it."""
    return _at(("source", "component"), event) or _at(("reportingComponent",), event)


@dataclass(frozen=True, slots=True)
class FieldLabels:
    """The fields of a kind that a selector may name; `refusal` is the error text for another one, named at {}."""

    getters: Mapping[str, Getter]
    refusal: str = "field label not supported: {}"


OBJECT_META = FieldLabels(
    fields("metadata.name", "metadata.namespace"),
    '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"',
)
"""The fields of kinds that have none of their own."""


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One field compared with one text."""

    getter: Getter
    equal: bool
    value: str


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All terms must hold; none selects everything.

    `name` is the name that objects must have, which is compared with their key; "" for any.
    """

    terms: tuple[FieldTerm, ...] = ()
    name: str = ""

    def matches(self, obj: Json) -> bool:
        """Returns whether the object is selected; an absent field reads as ""."""
        return all((term.getter(obj) == term.value) == term.equal for term in self.terms)


EVERYTHING = FieldSelector()

_TERM = re.compile(r"(?P<field>[^=!\\,]*)(?P<sign>==|!=|=)(?P<value>.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(?P<escaped>.?)|=", re.DOTALL)


def parse(labels: FieldLabels, text: str) -> FieldSelector:
    """Returns the selector that `text` spells; blank text selects everything.

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


def _unescaped(found: re.Match[str]) -> str:
    letter = found["escaped"]
    if letter is None:
        raise bad_request(f"invalid field selector: unescaped character in value: {ord('=')}")
    if letter not in {",", "=", "\\"}:
        raise bad_request(f"invalid field selector: invalid escape sequence: {found[0]}")
    return letter
