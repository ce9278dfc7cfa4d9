"""Watch streams: the events of a subscription, JSON lines in a chunked response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from aiohttp import web

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.server.io.response import NOT_CACHED, add_warnings
from kdns.controlplane.server.registry import Registry
from kdns.controlplane.server.representation import JSON, Renderer, event_line
from kdns.controlplane.storage.store import Subscription

_STALLED_S = 60.0
"""A client that leaves data unread longer is disconnected."""

_PIECE_BYTES = 256 * 1024
"""Written at a time: a long initial list is neither held in memory nor written under one deadline."""


@dataclass(slots=True)
class WatchStream:
    """One client's watch, for `timeout_s`. `durable` returns when all commits are on disk.

    `interval_s` is that of bookmarks, math.inf for none.
    """

    _subscription: Subscription
    _renderer: Renderer
    _registry: Registry
    _durable: Callable[[], Awaitable[None]]
    _timeout_s: float
    _interval_s: float
    _first: bool = True

    async def run(self, request: web.BaseRequest, response: web.StreamResponse, *, ends_initial: bool) -> None:
        """Writes until the subscription is closed, the timeout is reached, or the client is gone or stalled.

        `ends_initial` sends the bookmark annotated `k8s.io/initial-events-end` after the initial events. An event is
        sent only when it is durable; if that fails, the watch ends with an ERROR event.
        """
        changed, time_s = asyncio.Event(), asyncio.get_running_loop().time
        self._subscription.wake = changed.set
        end_s, interval_s = time_s() + self._timeout_s, self._interval_s
        bookmark_s = time_s() + interval_s
        try:
            while True:
                changed.clear()
                lines = self._events()
                waiting, closed = self._subscription.waiting, self._subscription.closed
                closing = time_s() >= end_s or (closed and not waiting)
                if ends_initial and not waiting:
                    lines += self._bookmark(ends_initial=True)
                    ends_initial = False
                is_due = time_s() >= bookmark_s or (closing and interval_s < inf)
                if is_due and not (waiting or closed):
                    lines += self._bookmark(ends_initial=False)
                    bookmark_s = time_s() + interval_s
                if lines:
                    await self._durable()
                    async with asyncio.timeout(_STALLED_S):
                        await response.write(lines)
                if closing:
                    return
                if not waiting:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), min(end_s, bookmark_s) - time_s())
                else:
                    await asyncio.sleep(0)  # write() may return without yielding: other requests are served in between
        except StatusError as error:
            await response.write(event_line("ERROR", error.body()))
        except TimeoutError:
            if transport := request.transport:
                transport.abort()
        finally:
            self._subscription.close()

    def _events(self) -> bytes:
        events, first, now_s = self._subscription.take(_PIECE_BYTES), self._first, self._registry.now_s()
        self._first = first and not events
        return b"".join(
            self._renderer.event(event, now_s, first=first and not index) for index, event in enumerate(events)
        )

    def _bookmark(self, *, ends_initial: bool) -> bytes:
        revision, now_s = self._registry.store.revision, self._registry.now_s()
        line = self._renderer.bookmark(revision, now_s, ends_initial=ends_initial, first=self._first)
        self._first = False
        return line


async def started(request: web.BaseRequest, deprecation: str = "") -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": JSON, **NOT_CACHED})
    add_warnings(response, [deprecation] if deprecation else ())
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


async def refused(request: web.BaseRequest, error: StatusError) -> web.StreamResponse:
    """Answers a watch from an expired resourceVersion with 200 and one ERROR event."""
    response = await started(request)
    await response.write(event_line("ERROR", error.body()))
    await response.write_eof()
    return response
