"""The manifest that was applied last, as the text of an annotation."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Final

from kdns.controlplane.apimachinery.kinds import Json

_PLAIN_MAX: Final = 64 * 1024
"""Longer texts are compressed: all annotations of an object have 256 KiB, and definitions have up to 1 MiB."""
_TEXT_MAX: Final = 16 * 1024 * 1024
_ZLIB: Final = "zlib:"


def text_of(manifest: Json) -> str:
    """Returns the manifest as JSON; a long one compressed, in base64."""
    text = json.dumps(manifest, separators=(",", ":"), sort_keys=True)
    if len(text) <= _PLAIN_MAX:
        return text
    return _ZLIB + base64.b64encode(zlib.compress(text.encode())).decode()


def manifest_of(text: str) -> Json:
    """Returns the manifest in a text; {} for an invalid text."""
    try:
        if text.startswith(_ZLIB):
            packed = base64.b64decode(text.removeprefix(_ZLIB), validate=True)
            text = zlib.decompressobj().decompress(packed, _TEXT_MAX).decode()
        value = json.loads(text)
    except (ValueError, zlib.error, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
