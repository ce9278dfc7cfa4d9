"""Tables of tests in YAML files."""

from pathlib import Path
from typing import Any

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's, ten times as fast: each process of a run reads the tables anew."""


def yaml_file(path: Path) -> Any:
    """The document of a file."""
    return yaml.load(path.read_bytes(), LOADER)  # noqa: S506 - both are safe
