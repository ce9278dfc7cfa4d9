"""Tasks that run beside what started them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from kdns import logs

log = logs.get(__name__)


def observed(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """A task that nobody awaits: an error that ends it is logged at once."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(log_failure)
    return task


def log_failure(ended: asyncio.Task[None]) -> None:
    """A done callback: log the error that a task ended by."""
    if not ended.cancelled() and (error := ended.exception()):
        log.error("task failed", task=ended.get_name(), reason=str(error), exc_info=error)


async def unless_stopped(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Do the work, or cancel it when it is to stop. Raises what the work raises."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.wait((working, stopping))
    if not working.cancelled():
        working.result()
