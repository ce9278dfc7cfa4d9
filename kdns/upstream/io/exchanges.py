"""The exchanges with upstreams in flight: their limits and deadlines."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from kdns.dns.query import Query
from kdns.runtime.connections import ConnectionKind, maximum
from kdns.runtime.os_errors import os_reason
from kdns.runtime.poller import Poller
from kdns.upstream.framing import Key
from kdns.upstream.upstream import UpstreamError, UpstreamTimeoutError, UpstreamUnreachableError

MAX_EXCHANGES: Final = 4096
"""The most exchanges of all upstreams together; further ones fail at once.

Clients' shares are bounded before: as pending queries (kdns.runtime.client_memory).
"""
RANDOM_BYTES: Final = 4096
"""Read at a time: a system call for each query would be expensive."""
TICK_S: Final = 0.025
"""The interval at which all deadlines are checked: a timer for each query would cost more than its system calls."""


class Holder(Protocol):
    """The socket or connection of an exchange."""

    def drop(self, pending: Pending) -> None: ...


class Pending(msgspec.Struct, eq=False):
    """A query in flight, awaitable like an asyncio.Future at a third of the cost.

    `reply` is the response or the error, None while in flight. `deadline_s` is on the loop's clock, `client` is the
    client's address, "" for kdns itself. A PendingQuery that awaits it is resumed at once, a task in the next iteration
    of the loop. Do not pass it to asyncio.gather, which takes it for a Future and hangs: pass a coroutine.
    """

    exchanges: Exchanges
    timeout_s: float
    deadline_s: float
    question: bytes
    client: str
    key: Key = b""
    holder: Holder | None = None
    is_sent: bool = False
    has_other_case: bool = False
    reply: bytes | BaseException | None = None
    retry: Callable[[Pending], Awaitable[bytes]] | None = None
    """Gets the response another way if `reply` is b"": the received messages cannot be trusted."""
    query: Query | None = None
    _callback: Callable[[Any], object] | None = None
    _context: Context | None = None
    _asyncio_future_blocking: bool = False  # how asyncio's tasks know what they may wait for

    @property
    def is_cancelled(self) -> bool:
        """Its client gave up: that says nothing about the upstream."""
        return self.reply is None or isinstance(self.reply, asyncio.CancelledError)

    def done(self) -> bool:
        return self.reply is not None

    def set_result(self, reply: bytes | BaseException) -> None:
        self.reply = reply
        self.exchanges.end(self)
        callback, self._callback = self._callback, None
        if callback is None:
            return
        if self._context is None:
            callback(self)
        else:
            self.exchanges.loop.call_soon(callback, self, context=self._context)

    def fail(self, error: UpstreamError) -> None:
        """No-op if the query has ended."""
        if self.reply is None:
            self.set_result(error)

    def cancel(self, msg: object = None) -> bool:
        del msg
        if self.reply is not None:
            return False
        self.set_result(asyncio.CancelledError())
        return True

    def result(self) -> bytes:
        if isinstance(self.reply, bytes):
            return self.reply
        error = self.reply or asyncio.InvalidStateError("the query is in flight")
        raise error.with_traceback(None)  # queries of one connection share the error: each would add its frames

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.exchanges.loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Tasks pass a context: they must not run within another callback."""
        self._callback, self._context = callback, context

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        del callback
        self._callback = None
        return 1

    def __await__(self) -> Generator[Pending, None, bytes]:
        if self.reply is None:
            self._asyncio_future_blocking = True
            try:
                yield self
            finally:  # also if the coroutine is closed because its client is gone
                if self.reply is None:
                    self.exchanges.end(self)
        response = self.reply
        if not isinstance(response, bytes):
            response = self.result()
        if not response and self.retry is not None:
            return (yield from self.retry(self).__await__())
        return response


class Entropy:
    """Unpredictable bytes of the operating system: message ids, cases of letters, choices of sockets."""

    __slots__ = ("_batch", "_position")

    def __init__(self) -> None:
        self._batch = b""
        self._position = 0

    def take(self, size: int) -> bytes:
        """`size` is at most RANDOM_BYTES; no byte is returned twice."""
        start = self._position
        end = start + size
        if end > len(self._batch):
            self._batch = os.urandom(RANDOM_BYTES)
            start, end = 0, size
        self._position = end
        return self._batch[start:end]


@dataclass(slots=True)
class Counts:
    """Queries on new sockets (`opened`) and on existing ones (`reused`); `ignored` are messages without a query."""

    opened: int = 0
    reused: int = 0
    ignored: Counter[str] = field(default_factory=Counter)


class Exchanges:
    """Shared by the upstreams of a process: limits, deadlines, the poller, entropy and descriptors."""

    def __init__(self, max_exchanges: int = MAX_EXCHANGES, max_descriptors: int | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.entropy = Entropy()
        self.poller = Poller()
        self.max_exchanges = max_exchanges
        self.max_descriptors = maximum(ConnectionKind.UPSTREAMS) if max_descriptors is None else max_descriptors
        self.descriptors = 0
        self.rejected = 0
        self._in_flight: set[Pending] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._in_flight)

    def begin(self, timeout_s: float, question: bytes, client: str, deadline_s: float | None = None) -> Pending:
        """UpstreamError beyond `max_exchanges`; `deadline_s` is that of a continued exchange."""
        if len(self._in_flight) >= self.max_exchanges:
            self.rejected += 1
            raise UpstreamError(f"too many queries wait for upstreams; expected at most {self.max_exchanges}")
        if deadline_s is None:
            deadline_s = self.loop.time() + timeout_s
        pending = Pending(self, timeout_s, deadline_s, question, client)
        self._in_flight.add(pending)
        if self._timer is None:
            self._timer = self.loop.call_later(TICK_S, self._expire)
        return pending

    def end(self, pending: Pending) -> None:
        self._in_flight.discard(pending)
        if pending.holder is not None:
            pending.holder.drop(pending)

    def take_descriptor(self) -> bool:
        if self.descriptors >= self.max_descriptors:
            return False
        self.descriptors += 1
        return True

    def release_descriptor(self) -> None:
        self.descriptors -= 1

    def close(self) -> None:
        for pending in tuple(self._in_flight):
            pending.fail(UpstreamError("the server stops"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.poller.close()

    def _expire(self) -> None:
        now_s = self.loop.time()
        for pending in [pending for pending in self._in_flight if pending.deadline_s <= now_s]:
            took = f"after {pending.timeout_s:g} s"
            late = UpstreamTimeoutError(f"timed out {took}")
            pending.fail(late if pending.is_sent else UpstreamUnreachableError(f"no connection {took}"))
        self._timer = self.loop.call_later(TICK_S, self._expire) if self._in_flight else None


def unreachable(error: OSError) -> UpstreamUnreachableError:
    """With the system's text of an error, such as `connection refused`."""
    words = os_reason(error)
    return UpstreamUnreachableError(words[:1].lower() + words[1:])
