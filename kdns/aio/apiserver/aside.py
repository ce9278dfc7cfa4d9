"""Work on large bodies, in two threads beside the event loop, so that it delays no other request.

The loop gets the interpreter back after each `sys.getswitchinterval()`. Further work waits for a thread, which bounds
the memory that it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

LARGE_BYTES: Final = 32 * 1024
"""From this size on a body is decoded, checked or made in a thread: smaller ones take less than about 5 ms."""

_THREADS: Final = ThreadPoolExecutor(2, thread_name_prefix="bodies")

T = TypeVar("T")


async def aside(work: Callable[[], T], size_bytes: int) -> T:
    """The result of work on so many bytes of JSON."""
    if size_bytes < LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)
