"""How large an object may be, in fields and items."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kdns.controlplane.apimachinery.errors import StatusError

VALUES_MAX: Final = 100_000


def check_size(value: Any, text: bytes | None = None) -> None:
    """Raises 413 for more than 100,000 JSON values: a write takes some microseconds per value, while others wait.

    `text` is the value as JSON, if it is known. Differs: kube-apiserver and etcd bound the bytes alone.
    """
    text = msgspec.json.encode(value) if text is None else text
    if text.count(b",") + text.count(b"{") + text.count(b"[") < VALUES_MAX:
        return  # each value but the first follows one of these
    if _value_count(value) > VALUES_MAX:
        raise too_large(f"{VALUES_MAX} fields and items")


def _value_count(value: Any) -> int:
    """The value itself, and all fields and items below it."""
    count, containers = 1, [value] if isinstance(value, dict | list) else []
    while containers:
        container = containers.pop()
        count += len(container)
        inner = container.values() if isinstance(container, dict) else container
        containers += [value for value in inner if isinstance(value, dict | list)]
    return count


def too_large(limit: str) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}", {})
