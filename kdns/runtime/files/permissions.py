"""Warnings at the start about files of options that all users may read or change."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path


def open_secrets(files: dict[str, Path | None]) -> Iterator[str]:
    """A warning for each file with secrets, by its option, that all users of the machine may read or write."""
    for option, path in files.items():
        mode = _mode(path)
        if mode & (stat.S_IROTH | stat.S_IWOTH):
            verb = "read" if mode & stat.S_IROTH else "write"
            yield f"{option} {path}: all users of this machine may {verb} it (mode {mode:04o}); run chmod 600"


def open_folders(folders: dict[str, Path | None]) -> Iterator[str]:
    """A warning for each folder, by its option, in which all users of the machine may replace files."""
    for option, path in folders.items():
        mode = _mode(path)
        if mode & stat.S_IWOTH:
            yield f"{option} {path}: all users of this machine may write there (mode {mode:04o}); run chmod 700"


def _mode(path: Path | None) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode) if path else 0
    except OSError:
        return 0  # the error is reported when the file is opened
