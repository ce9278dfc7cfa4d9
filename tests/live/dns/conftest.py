"""Each test of a live server runs in both event loops: UDP answered in Python, and by compiled code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kdns.dnsserver.io.burst.event_loop import BurstEventLoop, is_compiled


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    compiled = {"compiled": BurstEventLoop} if is_compiled() else {}
    return {"interpreted": asyncio.SelectorEventLoop, **compiled}
