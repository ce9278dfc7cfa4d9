"""Fields that a JSON text gives twice: a decoder keeps the last one, strict field validation tells of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_TOLD_MAX = 100


class _Pairs(list[tuple[str, Any]]):
    """An object as it stands in the text."""


def duplicate_fields(text: bytes) -> list[str]:
    """Paths such as `spec.ports[0].name`, each once and at most 100; the text is JSON that can be decoded."""
    repeated = False

    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        found = dict(pairs)
        repeated = repeated or len(found) != len(pairs)
        return found

    json.loads(text, object_pairs_hook=noted)
    if not repeated:
        return []
    found = dict.fromkeys(_repeated(json.loads(text, object_pairs_hook=_Pairs), ""))
    return [path.removeprefix(".") for path in found][:_TOLD_MAX]


def _repeated(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, inner in value:
            if name in seen:
                yield f"{path}.{name}"
            seen.add(name)
            yield from _repeated(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _repeated(inner, f"{path}[{index}]")
