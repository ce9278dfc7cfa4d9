"""Printers: the columns of a kind's table, and the function that makes the cells of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kdns.controlplane.apimachinery.conditions import is_true
from kdns.controlplane.apimachinery.human_duration import since
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.validation import selector_text
from kdns.controlplane.schema.descriptions import description_at

Cells: TypeAlias = Callable[[Json, float], list[Any]]
"""The cells of an object's row at a time in Unix seconds."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `about` is the path of the field that it shows, which gives its description, or a sentence.

    Columns whose priority is not 0 are shown by `-o wide`. With `is_text`, `about` is always the description.
    """

    name: str
    about: str
    priority: int = 0
    type: str = "string"
    format: str = ""
    is_text: bool = False

    def definition(self, kind: Kind) -> Json:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self._description(kind),
            "priority": self.priority,
        }

    def _description(self, kind: Kind) -> str:
        if self.is_text or " " in self.about:
            return self.about
        return description_at(kind, self.about) or f"The field {self.about}."


@dataclass(frozen=True, slots=True)
class Printer:
    """How one kind is printed; `conditions` mark rows, such as those of Pods that have ended."""

    columns: tuple[Column, ...]
    cells: Cells
    conditions: Callable[[Json], list[Json]] | None = None


NAME: Final = Column("Name", "metadata.name", format="name")
AGE: Final = Column("Age", "metadata.creationTimestamp")
_SHORTENED_ITEMS = 3
NONE = "<none>"


def name(obj: Json) -> str:
    return str(obj.get("metadata", {}).get("name", ""))


def age(obj: Json, now_s: float) -> str:
    return since(obj.get("metadata", {}).get("creationTimestamp"), now_s)


def join_labels(labels: Mapping[str, str] | None) -> str:
    """Sorted, as `a=b,c=d`."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def shortened(texts: Iterable[str], empty: str) -> str:
    """The first three, and the number of the others."""
    listed = list(texts)
    more = f" + {len(listed) - _SHORTENED_ITEMS} more..." if len(listed) > _SHORTENED_ITEMS else ""
    return (",".join(listed[:_SHORTENED_ITEMS]) or empty) + more


def _default_cells(obj: Json, _now_s: float) -> list[Any]:
    return [name(obj), obj.get("metadata", {}).get("creationTimestamp", "")]


DEFAULT: Final = Printer((NAME, Column("Created At", "metadata.creationTimestamp", type="date")), _default_cells)


def printer_of(rows: Iterable[str]) -> Printer:
    columns = [_path_column(row) for row in rows]
    if not columns:
        return DEFAULT

    def shown(obj: Json, now_s: float) -> list[Any]:
        return [name(obj), *(cell(obj, now_s) for _, cell in columns)]

    return Printer((NAME, *(column for column, _ in columns)), shown)


def _path_column(text: str) -> tuple[Column, Callable[[Json, float], Any]]:
    """A column and its cell: `Age`, or `Title=path|absent` with further paths behind slashes.

    `#path+path` counts lists or maps. `Title*` is a column of `-o wide`. A path with `|0` gives a number. `@A,B` is the
    first of these conditions that is True.
    """
    title, _, source = text.partition("=")
    if not source:
        return AGE, age
    title, priority, paths = title.removesuffix("*"), int(title.endswith("*")), source.split("/")
    if source.startswith("#"):
        counted = [path.split(".") for path in source[1:].split("+")]
        return Column(title, ".".join(counted[0]), priority, "integer"), lambda obj, _: sum(
            len(at(obj, path) or ()) for path in counted
        )
    about = paths[0].partition("|")[0] if len(paths) == 1 else f"The fields {source}."
    if about.startswith("@"):
        about = "status.conditions"
    if len(paths) == 1 and source.endswith("|0"):
        names = about.split(".")
        return Column(title, about, priority, "integer"), lambda obj, _: at(obj, names) or 0
    return Column(title, about, priority), lambda obj, _: "/".join(_field_text(obj, path) for path in paths)


def _field_text(obj: Json, path: str) -> str:
    field, _, absent = path.partition("|")
    if field.startswith("@"):
        return next((name for name in field[1:].split(",") if is_true(obj, name)), absent)
    return _text(obj, field.split(".")) or absent


def at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(value: Any, path: Sequence[str]) -> str:
    match value:
        case None:
            return ""
        case list():
            return ",".join(filter(None, (_text(element, path) for element in value)))
        case dict() if path:
            return _text(value.get(path[0]), path[1:])
        case dict():
            return selector_text(value)
        case bool():
            return str(value).lower()
        case _:
            return str(value)
