"""FileReader of zones, read in a thread."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kdns.dnsserver.directive import UnreadableFileError
from kdns.errors import CorefileError

MAX_FILE_BYTES: Final = 256 << 20
"""The largest file that is read: a few million records."""
MAX_FILES: Final = 10_000
"""FileReader of one directory."""


class LocalFiles:
    """The files of this machine: see kdns.dnsserver.directive.FileReader."""

    def text(self, path: str) -> str:
        """See FileReader."""
        try:
            if not Path(path).is_file() and Path(path).exists():
                raise UnreadableFileError(path, 0, "", "cannot be read: it is no regular file")
            with Path(path).open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise UnreadableFileError(path, 0, "", f"cannot be read: {error.strerror or error}") from error
        if len(content) > MAX_FILE_BYTES:
            raise CorefileError(path, 0, "", f"has more than {MAX_FILE_BYTES >> 20} MiB")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorefileError(path, 0, "", f"is no text: {error}") from error

    def names(self, directory: str) -> tuple[str, ...]:
        """See FileReader. Links to files count as files; links to directories below are not followed."""

        def failed(error: OSError) -> None:
            raise UnreadableFileError(directory, 0, "", f"cannot be read: {error.strerror or error}") from error

        paths: list[str] = []
        for folder, _, names in os.walk(directory, onerror=failed):
            paths += [str(Path(folder, name)) for name in names]
            if len(paths) > MAX_FILES:
                raise CorefileError(directory, 0, "", f"has more than {MAX_FILES:,} files")
        return tuple(sorted(path for path in paths if Path(path).is_file()))
