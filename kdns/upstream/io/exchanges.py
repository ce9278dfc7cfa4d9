"""The pending exchanges of a process: their number, and their deadlines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import msgspec

from kdns.fair_queue import FairShares
from kdns.runtime.connections import ConnectionKind, maximum
from kdns.runtime.os_errors import os_reason
from kdns.runtime.poller import Poller
from kdns.upstream.framing import Key
from kdns.upstream.io.entropy import Entropy
from kdns.upstream.upstream import UpstreamError, UpstreamTimeoutError, UpstreamUnreachableError

MAX_EXCHANGES: Final = 4096
"""The most exchanges of all upstreams together; the next one fails at once. One client has half of them at most."""
TICK_S: Final = 0.025
"""The interval at which deadlines are checked, which is the longest delay of an expired exchange.

One timer checks all of them: a timer for each query would cost more than the query's system calls.
"""

Ignored: TypeAlias = Counter[str]
"""The received messages that match no query, by reason."""


class Holder(Protocol):
    """The socket or connection of an exchange."""

    def drop(self, pending: UnderWay) -> None:
        """Forgets a query whose client no longer waits."""
        ...


class Pending(asyncio.Future[bytes]):
    """A query that was sent and the response that it will have; also its deadline, on the clock of the loop.

    `client` is the address of the client, "" for kdns itself.
    """

    __slots__ = ("client", "deadline_s", "has_other_case", "holder", "is_sent", "key", "question", "timeout_s")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, timeout_s: float, deadline_s: float, question: bytes, client: str
    ) -> None:
        super().__init__(loop=loop)
        self.client = client
        self.timeout_s, self.deadline_s, self.question = timeout_s, deadline_s, question
        self.key: Key = b""
        self.holder: Holder | None = None
        self.is_sent = False
        self.has_other_case = False

    @property
    def is_cancelled(self) -> bool:
        """Whether its client gave it up: that says nothing about the upstream."""
        return self.cancelled() or not self.done()

    def fail(self, error: UpstreamError) -> None:
        """Ends the query without a response. Nothing happens where there is one already."""
        if not self.done():
            self.set_exception(error)


class Sent(msgspec.Struct, eq=False):
    """The same for a query that no coroutine waits for: when it ends, `ended` is called, once.

    `reply` is then the response, b"" if it has to be asked again over TCP, or the error.
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
    reply: bytes | UpstreamError | None = None
    ended: Callable[[], object] | None = None

    @property
    def is_cancelled(self) -> bool:
        """False: it ends with a response or an error."""
        return False

    def done(self) -> bool:
        """Returns whether it has ended."""
        return self.reply is not None

    def set_result(self, message: bytes) -> None:
        """Ends the query with a response."""
        self._end(message)

    def fail(self, error: UpstreamError) -> None:
        """Ends the query without a response. Nothing happens where there is one already."""
        if self.reply is None:
            self._end(error)

    def result(self) -> bytes:
        """Returns the response; raises the error."""
        if isinstance(self.reply, bytes):
            return self.reply
        raise self.reply or UpstreamError("the query has not ended")

    def _end(self, reply: bytes | UpstreamError) -> None:
        self.reply = reply
        self.exchanges.end(self)
        if self.ended is not None:
            ended, self.ended = self.ended, None  # which refers to this query: no reference cycle is left
            ended()


UnderWay: TypeAlias = Pending | Sent


@dataclass(slots=True)
class Counts:
    """Counters of one upstream over one protocol.

    `opened` and `reused` count the queries that were sent on a socket or connection made for them, and on one that
    was there. `ignored` are messages that answered no query.
    """

    opened: int = 0
    reused: int = 0
    ignored: Ignored = field(default_factory=Counter)


class Exchanges:
    """The state that the upstreams of a process share: bounds, deadlines, sockets' events and entropy.

    `descriptors` are those in use, at most `max_descriptors`.
    """

    def __init__(self, max_exchanges: int = MAX_EXCHANGES, max_descriptors: int | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.entropy = Entropy()
        self.poller = Poller()
        self.max_exchanges = max_exchanges
        self.max_descriptors = maximum(ConnectionKind.UPSTREAMS) if max_descriptors is None else max_descriptors
        self.descriptors = 0
        self.rejected = 0
        self._under_way: set[UnderWay] = set()
        self._shares = FairShares(max_exchanges)
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, timeout_s: float, question: bytes, client: str, deadline_s: float | None = None) -> Pending:
        """Starts one more exchange: it ends with the response, an UpstreamError or its deadline.

        UpstreamError if the client has no place left. `deadline_s` is that of an exchange which is continued, on the
        clock of the loop.
        """
        if not self._shares.take(client):
            self.rejected += 1
            limit = f"all clients together may have {self.max_exchanges}"
            raise UpstreamError(f"too many queries of one client wait for upstreams; {limit}")
        if deadline_s is None:
            deadline_s = self.loop.time() + timeout_s
        pending = Pending(self.loop, timeout_s, deadline_s, question, client)
        self._follow(pending)
        return pending

    def begin_sent(self, timeout_s: float, question: bytes, client: str, now_s: float) -> Sent | None:
        """Starts one more exchange at this time; None if the client has no place left."""
        if not self._shares.take(client):
            return None
        sent = Sent(self, timeout_s, now_s + timeout_s, question, client)
        self._follow(sent)
        return sent

    def _follow(self, pending: UnderWay) -> None:
        self._under_way.add(pending)
        if self._timer is None:
            self._timer = self.loop.call_later(TICK_S, self._expire)

    def end(self, pending: UnderWay) -> None:
        """Removes a query that has ended from its socket."""
        if pending in self._under_way:
            self._under_way.discard(pending)
            self._shares.give_back(pending.client)
        if pending.holder is not None:
            pending.holder.drop(pending)

    def take_descriptor(self) -> bool:
        """Counts a descriptor; returns False if all are in use."""
        if self.descriptors >= self.max_descriptors:
            return False
        self.descriptors += 1
        return True

    def give_descriptor(self) -> None:
        """Releases a descriptor that was closed."""
        self.descriptors -= 1

    def close(self) -> None:
        """Fails the queries in flight, and stops."""
        for pending in tuple(self._under_way):
            pending.fail(UpstreamError("the server stops"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.poller.close()

    def _expire(self) -> None:
        now_s = self.loop.time()
        for pending in [pending for pending in self._under_way if pending.deadline_s <= now_s]:
            pending.fail(timed_out(pending))
        self._timer = self.loop.call_later(TICK_S, self._expire) if self._under_way else None


def timed_out(pending: UnderWay) -> UpstreamError:
    """Returns the error of an exchange whose deadline has passed."""
    if pending.is_sent:
        return UpstreamTimeoutError(f"timed out after {pending.timeout_s:g} s")
    return UpstreamUnreachableError(f"no connection after {pending.timeout_s:g} s")


def unreachable(error: OSError) -> UpstreamUnreachableError:
    """Returns the system's text of an error, such as `connection refused`."""
    words = os_reason(error)
    return UpstreamUnreachableError(words[:1].lower() + words[1:])
