"""Writes the table of docs/modes.md: what the modes do differently with packets, from the rows of their semantics.

python -m tools.mode_table
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Final

from kdns.proxy.modes import MODES
from kdns.proxy.plan.semantics import Semantics

PAGE: Final = Path(__file__).parents[1] / "docs/modes.md"
BEGIN: Final = "<!-- from mode.py of each mode, by `make mode-table` -->\n"
END: Final = "<!-- end -->\n"


def table() -> str:
    """The table: a line for each field of which two modes have different values, a column for each mode."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in _lines())


def _lines() -> Iterator[tuple[str, ...]]:
    modes = [mode.semantics for mode in MODES.values()]
    yield "", *(f"`{mode.name}`" for mode in modes)
    yield ("---",) * (len(modes) + 1)
    for field in fields(Semantics):
        if field.name != "name":
            cells = [_cell(getattr(mode, field.name)) for mode in modes]
            if len(set(cells)) > 1:
                yield field.metadata["meaning"], *cells


def _cell(value: object) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(str, value))) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value or "any")


def page(text: str) -> str:
    """The page with the table as it is now."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE}: the lines around the table are not there: {BEGIN}{END}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
