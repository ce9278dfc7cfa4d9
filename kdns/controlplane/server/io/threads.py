"""Work on large bodies and objects, in two threads beside the event loop, so that it delays no other request.

The loop gets the interpreter back after each `sys.getswitchinterval()`. Further work waits for a thread, which bounds
the memory that it takes. Changes of the store are made in the loop, by `turns_of_loop`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.server.registry import InTurn
from kdns.controlplane.storage.watch import StoredObject

LARGE_BYTES: Final = 32 * 1024
"""From this size on a body is decoded, checked or made in a thread: smaller ones take less than about 5 ms."""

TURN_S: Final = 60.0
"""How long a thread waits for the loop, which is gone then."""

_TRIES: Final = 5
_THREADS: Final = ThreadPoolExecutor(2, thread_name_prefix="bodies")

T = TypeVar("T")


async def in_thread(work: Callable[[], T], size_bytes: int) -> T:
    """Returns the result of work on so many bytes of JSON."""
    if size_bytes < LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


async def made_in_thread(make: Callable[[], T], size_bytes: int, latest: Callable[[], StoredObject | None]) -> T:
    """The result of a write of so many bytes, made again where another write of the object came between.

    That is done in the loop where writes of others were faster each time.
    """
    if size_bytes >= LARGE_BYTES:
        for _try in range(_TRIES):
            before = latest()
            try:
                return await in_thread(make, size_bytes)
            except StatusError as error:
                if error.reason != "Conflict" or latest() is before:
                    raise
    return make()


def turns_of_loop() -> InTurn:
    """Runs work in the running loop, also for other threads, which wait for it; TimeoutError after a minute."""
    loop, owner = asyncio.get_running_loop(), threading.get_ident()

    def in_turn(work: Callable[[], T]) -> T:
        async def turn() -> T:
            return work()

        if threading.get_ident() == owner:
            return work()
        return asyncio.run_coroutine_threadsafe(turn(), loop).result(TURN_S)

    return in_turn
