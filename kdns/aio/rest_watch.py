"""Watch streams: a subscription's events as lines of a chunked response, written as soon as they are committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from kdns.aio import rest_content
from kdns.controlplane.negotiate import JSON
from kdns.controlplane.render import Renderer, error_line
from kdns.controlplane.status import StatusError
from kdns.controlplane.watch import Subscription

_STALLED_S = 60.0
"""How long a client may leave what it was sent unread."""

_PIECE_BYTES = 256 * 1024
"""How much is handed to a connection at a time: a long initial list neither waits in memory nor for one deadline."""


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """Seconds: how long the watch lasts and how often it hears a bookmark (None: never)."""

    timeout_s: float
    bookmark_interval_s: float | None


@dataclass(slots=True)
class _Clock:
    """Bookmarks and the end of a watch, as flags that a timer sets."""

    wake: Callable[[], None]
    ended: bool = False
    bookmark_due: bool = False

    def end(self) -> None:
        self.ended = True
        self.wake()

    def bookmark(self) -> None:
        self.bookmark_due = True
        self.wake()


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a stream needs to know: the latest revision, when all so far is on disk, and the time for tables."""

    revision: Callable[[], int]
    durable: Callable[[], Awaitable[None]]
    now_s: Callable[[], float]


class WatchStream:
    """One client's watch."""

    def __init__(self, subscription: Subscription, renderer: Renderer, cluster: Cluster, times: WatchTimes) -> None:
        self._subscription, self._renderer, self._cluster, self._times = subscription, renderer, cluster, times
        self._first = True

    async def run(self, request: web.BaseRequest, response: web.StreamResponse, *, ends_initial: bool) -> None:
        """Write until the subscription is closed, the time is up or the client is gone or reads nothing for a minute.

        `ends_initial` sends the bookmark that says that all objects which were there have been sent. Nothing is sent
        before it is on disk; where that fails, the watch ends with an ERROR.
        """
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        self._subscription.wake = changed.set
        clock = _Clock(changed.set)
        end = loop.call_later(self._times.timeout_s, clock.end)
        bookmark = self._bookmark_timer(clock)
        try:
            while True:
                changed.clear()
                lines = self._events()
                waiting, closed = self._subscription.waiting, self._subscription.closed
                closing = clock.ended or (closed and not waiting)
                if ends_initial and not waiting:
                    lines += self._bookmark(ends_initial=True)
                    ends_initial = False
                if (clock.bookmark_due or closing) and self._times.bookmark_interval_s and not (waiting or closed):
                    lines += self._bookmark(ends_initial=False)
                    bookmark.cancel()
                    clock.bookmark_due, bookmark = False, self._bookmark_timer(clock)
                if lines:
                    await self._cluster.durable()
                    async with asyncio.timeout(_STALLED_S):
                        await response.write(lines)
                if closing:
                    return
                if not waiting:
                    await changed.wait()
        except StatusError as error:
            await response.write(error_line(error.body()))
        except TimeoutError:
            if transport := request.transport:
                transport.abort()
        finally:
            end.cancel()
            bookmark.cancel()
            self._subscription.close()

    def _bookmark_timer(self, clock: _Clock) -> asyncio.TimerHandle:
        interval_s = self._times.bookmark_interval_s or self._times.timeout_s * 2
        return asyncio.get_running_loop().call_later(interval_s, clock.bookmark)

    def _events(self) -> bytes:
        lines = []
        for event in self._subscription.take(_PIECE_BYTES):
            lines.append(self._renderer.event(event, self._cluster.now_s(), first=self._first))
            self._first = False
        return b"".join(lines)

    def _bookmark(self, *, ends_initial: bool) -> bytes:
        revision, now_s = self._cluster.revision(), self._cluster.now_s()
        line = self._renderer.bookmark(revision, now_s, ends_initial=ends_initial, first=self._first)
        self._first = False
        return line


async def started(request: web.BaseRequest, warnings: list[str] | None = None) -> web.StreamResponse:
    """The response of a watch, its header sent."""
    response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
    rest_content.warn(response, warnings or [])
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


async def refused(request: web.BaseRequest, error: StatusError) -> web.StreamResponse:
    """A watch that cannot start from where the client wants: 200 and one ERROR event, as kube-apiserver does it."""
    response = await started(request)
    await response.write(error_line(error.body()))
    await response.write_eof()
    return response
