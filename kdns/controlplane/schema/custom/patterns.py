"""The door to RE2 for patterns of schemas: its time is linear in the text, and its syntax is that of Go's regexp."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_PATTERNS_MAX = 4096


@lru_cache(maxsize=_PATTERNS_MAX)
def compiled(pattern: str) -> Any:
    """Raises ValueError with the reason for an invalid pattern."""
    import re2  # noqa: PLC0415 - few clusters have such schemas

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise ValueError(reason.decode() if isinstance(reason, bytes) else str(reason)) from error
