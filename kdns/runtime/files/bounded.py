"""Text files of users, read up to a bound: a device may have no end."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO, Final

from kdns.errors import ManifestError

CHARACTERS_MAX: Final = 64 * 1024 * 1024
BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest file of YAML or JSON: its objects need about ten times as much memory."""


def bounded_text(
    path: Path | str,
    characters_max: int | None = None,
    *,
    encoding: str = "utf-8",
    errors: str = "strict",
    newline: str | None = None,
) -> str:
    """A `newline` of "" keeps line ends. The OSError of a longer file has EFBIG, of another encoding EILSEQ."""
    characters_max = CHARACTERS_MAX if characters_max is None else characters_max
    try:
        with Path(path).open(encoding=encoding, errors=errors, newline=newline) as file:
            text = file.read(characters_max + 1)
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, str(error), str(path)) from error
    if len(text) > characters_max:
        raise OSError(errno.EFBIG, f"too large, expected at most {characters_max} characters", str(path))
    return text


def text_of(path: Path) -> str:
    """Raises ManifestError for a file that cannot be read, is too large or is not UTF-8."""
    try:
        with path.open("rb") as file:
            return decoded(path, file)
    except OSError as error:
        raise unreadable(path, error) from error


def decoded(path: Path, file: BinaryIO) -> str:
    """Raises ManifestError for a file that is too large or not UTF-8."""
    content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise ManifestError(str(path), 0, "", f"too large, expected at most {BYTES_MAX >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ManifestError(str(path), line, "", f"not UTF-8: byte 0x{content[error.start]:02x}") from error


def unreadable(path: Path, error: OSError) -> ManifestError:
    return ManifestError(str(path), 0, "", f"cannot be read: {error.strerror}")
