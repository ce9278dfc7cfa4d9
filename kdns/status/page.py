"""The page as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kdns.status.plot import Plot


class Fact(NamedTuple):
    """One line of a section."""

    label: str
    value: str


class Link(NamedTuple):
    """A text that leads to a path; `is_current` if it leads to what is shown."""

    text: str
    path: str
    is_current: bool = False


Cell: TypeAlias = str | Link


class Table(NamedTuple):
    """The first cell of a row is its head; `empty` is said in place of a table without rows.

    `pages` lead to the other rows of a table that is shown in parts.
    """

    caption: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    empty: str = ""
    pages: Sequence[Link] = ()


class Advice(NamedTuple):
    """Something that is wrong, what ends it, and the objects concerned."""

    text: str
    cure: str = ""
    objects: Sequence[Cell] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """One heading of the page, and what is below it."""

    heading: str
    facts: Sequence[Fact] = ()
    plots: Sequence[Plot] = ()
    storms: Sequence[Advice] = ()
    tables: Sequence[Table] = ()

    @property
    def anchor(self) -> str:
        return self.heading.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Form:
    """A form that asks for something: its path, fields as name, label, example and value, and the answer.

    `hidden` are further names and values that it sends; `links` lead to other choices.
    """

    path: str
    heading: str
    button: str
    fields: Sequence[tuple[str, str, str, str]]
    answer: str = ""
    error: str = ""
    hidden: Sequence[tuple[str, str]] = ()
    links: Sequence[Link] = ()


@dataclass(frozen=True, slots=True)
class View:
    """A page: its title, problems that need somebody, its forms and sections, and links to the site's pages."""

    title: str
    at: str
    problems: Sequence[Advice]
    forms: Sequence[Form]
    sections: Sequence[Section]
    site: Sequence[Link] = ()


def rate(value: float) -> str:
    return f"{value:,.0f}/s" if value >= 10 else f"{value:.1f}/s"


def percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "0%"


def age(seconds: float) -> str:
    """In the largest unit that it fills."""
    for unit, size_s in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
