"""The files of the reference, by their paths in the project."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.reference import commands, drawing, kinds, metrics, python_api, status_picture

ROOT: Final = Path(__file__).parents[2]


def files() -> dict[str, str]:
    """Returns the text of each file, as the code has it now."""
    manual = {f"docs/man/{name}": text for name, text in commands.manual_pages().items()}
    pages = {
        "commands": commands.page,
        "all-metrics": metrics.page,
        "kinds": kinds.page,
        "python-api": python_api.page,
    }
    return (
        {f"docs/reference/{name}.md": page() for name, page in pages.items()}
        | manual
        | {"docs/architecture.svg": drawing.drawing(), "docs/status.svg": status_picture.picture()}
    )
