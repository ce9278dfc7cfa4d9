"""Text files of users, read up to a bound: a device may have no end."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

CHARACTERS_MAX: Final = 64 * 1024 * 1024


def bounded_text(path: Path | str, *, encoding: str = "utf-8", errors: str = "strict") -> str:
    """The text of a file; OSError, EFBIG for one that is too large, and UnicodeDecodeError."""
    with Path(path).open(encoding=encoding, errors=errors) as file:
        text = file.read(CHARACTERS_MAX + 1)
    if len(text) > CHARACTERS_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return text
