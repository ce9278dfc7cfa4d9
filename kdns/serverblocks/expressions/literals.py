"""Quoted strings of expressions and of Go templates, with Go's escapes."""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_CONTROLS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SIGNS: Final = "\\'\""


def unquoted(quoted: str) -> str:
    """Returns the text of a string in quotes; one in backquotes has no escapes. ValueError for a wrong escape."""
    return quoted[1:-1] if quoted[0] == "`" else _ESCAPE.sub(_meant, quoted[1:-1])


def _meant(match: re.Match[str]) -> str:
    escape = match[1]
    if escape in _CONTROLS or escape in _SIGNS:
        return _CONTROLS.get(escape, escape)
    code = int(escape[1:], 16) if escape[0] in "xuU" and escape[1:] else int(escape, 8) if escape[1:] else -1
    if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError(f"`\\{escape}` is not an escape")
    return chr(code)
