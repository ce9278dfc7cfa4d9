"""Tasks that run beside their creator."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from kdns import logs

T = TypeVar("T")

SLICE_S: Final = 0.001
"""How long work of many parts runs before others get the loop; UDP buffers hold the queries of about 5 ms."""

TURN_S: Final = 0.0005
"""How long a thread computes before the loop gets its turn; CPython's 5 ms are as long as UDP buffers last."""

RESTART_S: Final = 5.0
"""The pause before work that failed by a defect begins again."""

log = logs.get(__name__)


def observed(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """For a task that is never awaited: an error that ends it is logged at once."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(log_failure)
    return task


def restarted(
    work: Callable[[], Coroutine[Any, Any, None]],
    name: str,
    *,
    ended_by: tuple[type[Exception], ...] = (),
) -> asyncio.Task[None]:
    """An error is logged, and the work begins again RESTART_S later; one of the types `ended_by` ends the task."""
    return asyncio.create_task(_restarting(work, name, ended_by), name=name)


async def _restarting(
    work: Callable[[], Coroutine[Any, Any, None]], name: str, ended_by: tuple[type[Exception], ...]
) -> None:
    while True:
        try:
            await work()
        except ended_by:
            raise
        except Exception as error:  # a task's boundary: what it does must not end unnoticed
            log.exception("task failed, it begins again", task=name, reason=str(error), again_in_s=RESTART_S)
        else:
            return
        await asyncio.sleep(RESTART_S)


def time_slice() -> Callable[[], bool]:
    """The result is called to ask whether the slice of time that begins now is over: then others get the loop."""
    time_s = asyncio.get_running_loop().time
    end_s = time_s() + SLICE_S
    return lambda: time_s() >= end_s


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """After each slice of time others get the loop."""
    is_over = time_slice()
    for item in items:
        yield item
        if is_over():
            await asyncio.sleep(0)
            is_over = time_slice()


def log_failure(ended: asyncio.Task[Any]) -> None:
    """A done callback."""
    if not ended.cancelled() and (error := ended.exception()):
        log.error("task failed", task=ended.get_name(), reason=str(error), exc_info=error)


async def uninterrupted(work: Coroutine[Any, Any, T], *, patience_s: float | None = None) -> T:
    """For work that later changes depend on: a cancellation takes effect when it ends, or after `patience_s`."""
    task = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            if cancellation is None and patience_s is not None:
                limit = asyncio.get_running_loop().call_later(patience_s, task.cancel)
                task.add_done_callback(lambda _, limit=limit: limit.cancel())  # type: ignore[misc]
            cancellation = error
    if cancellation is None:
        return task.result()
    if not task.cancelled() and (failure := task.exception()):
        raise cancellation from failure
    raise cancellation


async def unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """The result of the work, or None if `stop` cancelled it."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.wait((working, stopping))
    return None if working.cancelled() else working.result()


async def in_thread(call: Callable[[], T]) -> T:
    """For what computes for longer than a slice of time, and cannot be cut into slices."""
    sys.setswitchinterval(TURN_S)  # of the process, from then on: it costs only while a thread computes
    return await asyncio.to_thread(call)


async def in_daemon_thread(call: Callable[[], T]) -> T:
    """For files that others name: a FIFO, or a file system that is away, must not delay the end."""
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()  # it cannot be cancelled: it may be set after its waiter is gone

    def run() -> None:
        try:
            result.set_result(call())
        except Exception as error:  # noqa: BLE001 - it is raised where the result is awaited
            result.set_exception(error)

    threading.Thread(target=run, name="file", daemon=True).start()
    return await asyncio.wrap_future(result)
