"""What a kind's table is made of: its columns, and the function that makes a row's cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kdns.controlplane.kinds import Json, Kind
from kdns.controlplane.schema import field_at

Cells: TypeAlias = Callable[[Json, float], list[Any]]
"""Makes the cells of an object at a time (Unix seconds)."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `about` is the path of the field it shows, whose documentation it takes, or a sentence."""

    name: str
    about: str
    wide: bool = False
    type: str = "string"

    def definition(self, kind: Kind) -> Json:
        """The column as TableColumnDefinition."""
        return {
            "name": self.name,
            "type": self.type,
            "format": "name" if self.name == "Name" else "",
            "description": self.about if " " in self.about else field_at(kind, self.about).doc,
            "priority": int(self.wide),
        }


@dataclass(frozen=True, slots=True)
class Printer:
    """How one kind is printed."""

    columns: tuple[Column, ...]
    cells: Cells


NAME: Final = Column("Name", "metadata.name")
AGE: Final = Column("Age", "metadata.creationTimestamp")
