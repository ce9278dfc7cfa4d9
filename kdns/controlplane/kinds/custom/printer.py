"""The columns of custom resources: additionalPrinterColumns of a version (kube-apiserver: registry/customresource)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kdns.controlplane.apimachinery.human_duration import since
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.columns import NAME, Column, Printer, name
from kdns.controlplane.kinds.custom.jsonpath import first

_AGE: Final[Json] = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def printer_of(columns: Sequence[Json]) -> Printer:
    """Returns the printer of additionalPrinterColumns; without columns it has the age."""
    rows = [(each["jsonPath"], each["type"]) for each in columns or (_AGE,)]

    def cells(obj: Json, now_s: float) -> list[Any]:
        return [name(obj), *(_cell(first(path, obj), kind, now_s) for path, kind in rows)]

    return Printer((NAME, *map(_column, columns or (_AGE,))), cells)


def _column(column: Json) -> Column:
    path = column["jsonPath"]
    about = column.get("description") or f"The field {path}."
    return Column(
        column["name"], about, column.get("priority") or 0, column["type"], column.get("format") or "", is_text=True
    )


def _cell(value: Any, kind: str, now_s: float) -> Any:
    """Returns a value as the cell of a column; None for one that is absent or not of the column's type."""
    match kind, value:
        case _, None:
            return None
        case "string", dict() | list():
            return msgspec.json.encode(value).decode()
        case "string", bool():
            return str(value).lower()
        case "string", _:
            return str(value)
        case "date", str():
            return since(value, now_s)
        case "boolean", bool():
            return value
        case "integer", int() | float() if not isinstance(value, bool):
            return int(value)
        case "number", int() | float() if not isinstance(value, bool):
            return value
    return None
