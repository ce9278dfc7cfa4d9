"""Text files of users, read up to a bound: a device may have no end."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

CHARACTERS_MAX: Final = 64 * 1024 * 1024


def bounded_text(
    path: Path | str, characters_max: int | None = None, *, encoding: str = "utf-8", errors: str = "strict"
) -> str:
    """The text of a file, of CHARACTERS_MAX at most where no other bound is given.

    Raises OSError, with EFBIG for a file that is too large, and UnicodeDecodeError.
    """
    characters_max = CHARACTERS_MAX if characters_max is None else characters_max
    with Path(path).open(encoding=encoding, errors=errors) as file:
        text = file.read(characters_max + 1)
    if len(text) > characters_max:
        raise OSError(errno.EFBIG, f"too large, expected at most {characters_max} characters", str(path))
    return text
