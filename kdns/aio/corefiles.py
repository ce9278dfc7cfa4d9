"""Reads a Corefile and what it imports."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from kdns.corefile.parse import parse
from kdns.errors import CorefileError
from kdns.plugins.registry import ServerConfig, configure


def load_corefile(path: str, *, dns_port: int) -> tuple[ServerConfig, ...]:
    """The servers a Corefile asks for; CorefileError, with file and line, for one that cannot be used."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CorefileError(path, 0, "", f"cannot be read: {_reason(error)}") from error
    folder = os.path.dirname(path)  # noqa: PTH120 - patterns are joined as text, as the user wrote them

    def read(pattern: str) -> Sequence[tuple[str, str]]:
        """All files that match, in order of their names."""
        found = sorted(glob.glob(pattern if os.path.isabs(pattern) else os.path.join(folder, pattern)))  # noqa: PTH117, PTH118, PTH207 - see above
        return [(name, Path(name).read_text(encoding="utf-8")) for name in found if Path(name).is_file()]

    return configure(parse(text, path, environ=os.environ, read=read), dns_port=dns_port)


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
