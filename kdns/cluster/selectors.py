"""Label selectors as text: `app=web,tier!=cache,env in (a, b),!legacy` → Selector.

Kubernetes documentation, "Labels and Selectors": equality (`=`, `==`, `!=`), sets (`in`, `notin`), existence (`key`,
`!key`) and integers (`key>1`, `key<1`), joined by commas, which mean "and".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kdns.errors import InputError

Labels: TypeAlias = Mapping[str, str]

_TOKEN = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_WANTED = "expected at most 63 letters, digits, '-', '_', '.', alphanumeric at both ends"
_PUNCTUATION = frozenset({"=", "==", "!=", "!", "<", ">", "(", ")", ","})


class SelectorError(InputError):
    """An invalid selector: the text and the reason."""

    def __init__(self, text: str, reason: str) -> None:
        self.text, self.reason = text, reason
        super().__init__(f"selector {text!r}: {reason}")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label; `operator` is one of the keys of `_TESTS`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """A missing label matches `!=` and `notin`."""
        return _TESTS[self.operator](labels.get(self.key), self.values)


@dataclass(frozen=True, slots=True)
class Selector:
    """A conjunction of requirements; an empty one selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Labels | None) -> bool:
        return all(requirement.matches(labels or {}) for requirement in self.requirements)


EVERYTHING = Selector()


def _compare(value: str | None, values: tuple[str, ...], sign: int) -> bool:
    try:
        return value is not None and sign * (int(value) - int(values[0])) > 0
    except ValueError:
        return False


_TESTS: dict[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "=": lambda value, values: value == values[0],
    "!=": lambda value, values: value != values[0],
    "in": lambda value, values: value in values,
    "notin": lambda value, values: value not in values,
    "exists": lambda value, _: value is not None,
    "!": lambda value, _: value is None,
    ">": lambda value, values: _compare(value, values, 1),
    "<": lambda value, values: _compare(value, values, -1),
}


def from_labels(labels: Labels) -> Selector:
    return Selector(tuple(Requirement(key, "=", (value,)) for key, value in sorted(labels.items())))


def parse(text: str) -> Selector:
    """An empty text selects everything; raises SelectorError."""
    reader = _Reader(text)
    if not reader.tokens:
        return EVERYTHING
    requirements = [reader.requirement()]
    while (word := reader.take()) is not None:
        if word != ",":
            raise SelectorError(text, f"expected ',' or the end, got {word!r}")
        requirements.append(reader.requirement())
    return Selector(tuple(requirements))


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _TOKEN.findall(text)[::-1]

    def take(self) -> str | None:
        return self.tokens.pop() if self.tokens else None

    def peek(self) -> str | None:
        return self.tokens[-1] if self.tokens else None

    def requirement(self) -> Requirement:
        negated = self.peek() == "!"
        if negated:
            self.take()
        key = self.key()
        if negated:
            return Requirement(key, "!")
        match self.peek():
            case None | ",":
                return Requirement(key, "exists")
            case "=" | "==" | "!=" as sign:
                self.take()
                return Requirement(key, "=" if sign == "==" else sign, (self.value(),))
            case "<" | ">" as sign:
                self.take()
                return Requirement(key, sign, (self.integer(),))
            case "in" | "notin" as word:
                self.take()
                return Requirement(key, word, self.values())
            case word:
                raise SelectorError(self.text, f"expected =, ==, !=, in, notin, < or > after {key!r}, got {word!r}")

    def key(self) -> str:
        key = self.take()
        if key is None or key in _PUNCTUATION:
            raise SelectorError(self.text, f"expected a label key, got {key or 'the end'!r}")
        prefix, slash, name = key.rpartition("/")
        if slash and not (len(prefix) <= 253 and _PREFIX.fullmatch(prefix)):
            raise SelectorError(self.text, f"label key {key!r}: the part before '/' must be a DNS name")
        if not _NAME.fullmatch(name):
            raise SelectorError(self.text, f"label key {key!r}: {_WANTED}")
        return key

    def value(self) -> str:
        if self.peek() in {None, ",", ")"}:
            return ""
        value = self.take() or ""
        if not _NAME.fullmatch(value):
            raise SelectorError(self.text, f"label value {value!r}: {_WANTED}")
        return value

    def integer(self) -> str:
        value = self.take() or ""
        if not re.fullmatch(r"-?\d+", value):
            raise SelectorError(self.text, f"expected an integer after '<' or '>', got {value or 'the end'!r}")
        return value

    def values(self) -> tuple[str, ...]:
        if (word := self.take()) != "(":
            raise SelectorError(self.text, f"expected '(' after in or notin, got {word or 'the end'!r}")
        values = [self.value()]
        while (word := self.take()) == ",":
            values.append(self.value())
        if word != ")":
            raise SelectorError(self.text, f"expected ',' or ')' in the set, got {word or 'the end'!r}")
        return tuple(values)
