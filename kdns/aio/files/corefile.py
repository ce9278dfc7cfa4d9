"""Reads a Corefile and what it imports."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from kdns.corefile.parse import parse
from kdns.errors import CorefileError
from kdns.plugins.server_config import ServerConfig, configure


def load_corefile(
    path: str, *, dns_port: int, filled: Callable[[str], str] = lambda text: text
) -> tuple[ServerConfig, ...]:
    """The servers of a Corefile; CorefileError, with file and line, for one that is invalid.

    `filled` gives the text that counts for the text of the file.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CorefileError(path, 0, "", f"cannot be read: {_reason(error)}") from error
    return parse_corefile(filled(text), path, dns_port=dns_port)


def parse_corefile(text: str, path: str, *, dns_port: int) -> tuple[ServerConfig, ...]:
    """The servers of this text; `path` is its name in errors, and imports are relative to its folder."""
    return configure(parse(text, path, environ=os.environ, read=_read_all), dns_port=dns_port)


def _read_all(pattern: str) -> Sequence[tuple[str, str]]:
    """All files that match, sorted by name."""
    found = sorted(glob.glob(pattern))  # noqa: PTH207 - the pattern is the user's text
    return [(name, Path(name).read_text(encoding="utf-8")) for name in found if Path(name).is_file()]


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
