"""A reflector of an API that a test scripts."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from fake_api import refuse_initial_events

from kdns.cluster.io.outage import Outage
from kdns.cluster.io.pager import Api
from kdns.cluster.io.reflector import Reflector, WatchStats
from kdns.cluster.objects import Object, Service
from kdns.cluster.state import Change, State
from kdns.cluster.watch import RESOURCES, Timing


class ScriptedApi(ABC):
    """Has lists in pages, and watches that begin with a resourceVersion."""

    server = "http://api"

    @abstractmethod
    def page(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]: ...

    async def watch(self, _params: Mapping[str, str]) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        if "watch" in params:
            refuse_initial_events(params)
            yield self.watch(params)
        else:
            yield self.page(path, params)


async def no_wait(_wait_s: float) -> None:
    await asyncio.sleep(0)


async def reflect(
    api: Api,
    state: State,
    changed: Callable[[list[Change]], None],
    until: asyncio.Event,
    *,
    kind: type[Object] = Service,
    stats: WatchStats | None = None,
    outage: Outage | None = None,
    timing: Timing | None = None,
    fraction: float = 0.0,
    sleep: Callable[[float], Awaitable[None]] = no_wait,
) -> None:
    """Runs until the event is set, at a time that stands still."""
    reflector = Reflector(
        RESOURCES[kind],
        api,
        state,
        changed,
        stats or WatchStats(),
        outage or Outage(),
        timing or Timing(),
        lambda: 0.0,
        lambda: fraction,
        sleep=sleep,
    )
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(60):
            await until.wait()
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
