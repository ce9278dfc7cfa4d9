"""Tests of a live server run where UDP is answered by compiled code; some also where Python answers it."""

import asyncio
from collections.abc import Callable

import pytest

from kdns.dnsserver.io.burst.event_loop import BurstEventLoop, is_compiled

BOTH = ("test_counts.py", "test_dns_listeners.py", "test_flood.py", "test_status_page.py::test_of_more_queries")
"""What is about queries over UDP runs in both event loops; test_burst.py compares their answers."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    if not is_compiled():
        return {"interpreted": asyncio.SelectorEventLoop}
    interpreted = {"interpreted": asyncio.SelectorEventLoop} if item.nodeid.rpartition("/")[2].startswith(BOTH) else {}
    return {**interpreted, "compiled": BurstEventLoop}
