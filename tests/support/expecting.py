"""What objects shall look like, as far as it is said, and asking until they do."""

import re
import time
from collections.abc import Callable
from typing import Any

from kdns_process import DEADLINE_S


def differs(wanted: Any, got: Any, path: str = "") -> str:
    """Where a value is not as wanted; "" when it is. Objects may hold more, null is absent, ~ begins a pattern."""
    if isinstance(wanted, dict):
        if got is None and wanted and all(value is None for value in wanted.values()):
            return ""
        if not isinstance(got, dict):
            return f"{path}: {got!r}, wanted an object"
        return next(filter(None, (differs(value, got.get(key), f"{path}.{key}") for key, value in wanted.items())), "")
    if isinstance(wanted, list):
        if not isinstance(got, list) or len(wanted) != len(got):
            return f"{path}: {got!r}, wanted {len(wanted)} elements"
        pairs = enumerate(zip(wanted, got, strict=True))
        return next(filter(None, (differs(*pair, f"{path}[{index}]") for index, pair in pairs)), "")
    if isinstance(wanted, str) and wanted.startswith("~"):
        good = got is not None and re.fullmatch(wanted[1:], str(got)) is not None
    else:
        good = wanted == got
    return "" if good else f"{path}: {got!r}, wanted {wanted!r}"


def until_as(wanted: Any, ask: Callable[[], Any], what: str) -> None:
    """Ask until the answer is as wanted; fails after the deadline with what was not."""
    deadline_s = time.monotonic() + DEADLINE_S
    while found := differs(wanted, ask(), what):
        assert time.monotonic() < deadline_s, found
        time.sleep(0.02)
