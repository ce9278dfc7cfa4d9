"""/debug/pprof of a Python process: the stacks of its tasks and threads, and a sampling profile.

Differs: Go answers with pprof's protocol buffers. Here everything is text. The profile has folded stacks, one per line
with its count, the format of flame graph programs such as speedscope. Profiles of Go's runtime are not served: heap,
allocs, block, mutex, threadcreate, trace, symbol.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from types import FrameType
from typing import Any, Final

from aiohttp import web

from kdns.runtime.http.server import Handler

SECONDS: Final = range(1, 121)
"""The durations of a profile. The default is 30, as in Go."""
DEFAULT_S: Final = 30
INTERVAL_S: Final = 0.01
MAX_FRAMES: Final = 64
MAX_STACKS: Final = 10_000
MAX_TASKS: Final = 1000
OTHER: Final = "(other stacks)"


def profiles() -> dict[str, Handler]:
    """Returns the handlers, by path."""
    gate = threading.Lock()

    async def profile(request: web.BaseRequest) -> web.Response:
        text = request.query.get("seconds", str(DEFAULT_S))
        if text not in map(str, SECONDS):
            raise web.HTTPBadRequest(text=f"seconds: expected {SECONDS.start} to {SECONDS.stop - 1}, got {text!r}\n")
        if not gate.acquire(blocking=False):
            return web.Response(text="a profile is already running\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
        over = threading.Event()
        try:
            stacks = await asyncio.to_thread(sampled, int(text), over)
        finally:
            over.set()
            gate.release()
        return web.Response(text="".join(f"{stack} {count}\n" for stack, count in stacks.most_common()))

    return {
        "/debug/pprof": _to_index,
        "/debug/pprof/": _index,
        "/debug/pprof/cmdline": _cmdline,
        "/debug/pprof/goroutine": _stacks,
        "/debug/pprof/profile": profile,
    }


def sampled(seconds: float, over: threading.Event) -> Counter[str]:
    """Returns the stacks of all other threads with their counts, sampled for `seconds` or until `over` is set."""
    found: Counter[str] = Counter()
    own = threading.get_ident()
    until_s = time.monotonic() + seconds
    while True:
        for ident, frame in sys._current_frames().items():  # noqa: SLF001 - no public function does this
            if ident != own:
                stack = ";".join(reversed([_name(each) for each in _callers(frame)]))
                found[stack if stack in found or len(found) < MAX_STACKS else OTHER] += 1
        if over.wait(INTERVAL_S) or time.monotonic() >= until_s:
            return found


async def _to_index(_request: web.BaseRequest) -> web.Response:
    raise web.HTTPMovedPermanently("/debug/pprof/")


async def _index(_request: web.BaseRequest) -> web.Response:
    return web.Response(
        text="/debug/pprof/\n\n"
        f"{len(asyncio.all_tasks())} tasks, {threading.active_count()} threads\n\n"
        "goroutine: the stacks of all tasks and threads\n"
        f"profile?seconds={DEFAULT_S}: the stacks of all threads over some time, folded, for a flame graph\n"
        "cmdline: the command line\n"
    )


async def _cmdline(_request: web.BaseRequest) -> web.Response:
    return web.Response(text="\0".join(sys.argv))


async def _stacks(_request: web.BaseRequest) -> web.Response:
    return web.Response(text="\n".join(_dump(asyncio.all_tasks())))


def _dump(tasks: set[asyncio.Task[Any]]) -> Iterator[str]:
    frames = sys._current_frames()  # noqa: SLF001 - no public function does this
    names = {each.ident: each.name for each in threading.enumerate()}
    yield f"{len(tasks)} tasks, {len(frames)} threads"
    for ident, frame in frames.items():
        yield from ("", f"thread {names.get(ident, ident)}:", *map(_place, _callers(frame)))
    for task in sorted(tasks, key=asyncio.Task.get_name)[:MAX_TASKS]:
        yield from ("", f"task {task.get_name()}:", *map(_place, _awaited(task.get_coro())))
    if tasks and len(tasks) > MAX_TASKS:
        yield from ("", f"and {len(tasks) - MAX_TASKS} more tasks")


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yields the frame and its callers, innermost first."""
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _awaited(waiting: Any) -> Iterator[FrameType]:
    """Returns the frames of a coroutine and its awaited objects, innermost first."""
    frames: list[FrameType] = []
    while waiting is not None and len(frames) < MAX_FRAMES:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(waiting, f"{kind}_frame")), "")
        frame = getattr(waiting, f"{kind}_frame", None)
        if frame is None:
            break
        frames.append(frame)
        waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)
    return reversed(frames)


def _place(frame: FrameType) -> str:
    return f"    {frame.f_code.co_filename}:{frame.f_lineno} {_name(frame)}"


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"
