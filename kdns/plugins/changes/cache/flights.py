"""Coalesces questions in flight: later directives get one of several equal questions, and the other clients wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, TypeVar

from kdns.answers.chain import Reply, Request, Serve, awaited
from kdns.answers.response import PRIVATE, Response
from kdns.dns.query import AD
from kdns.dns.types import SERVFAIL
from kdns.plugins.changes.cache.counts import Counts
from kdns.plugins.changes.cache.kinds import OTHER, Contents
from kdns.plugins.changes.cache.store import Item
from kdns.serverblocks.directive import Future
from kdns.values import Value, evolve

MAX_WAITERS: Final = 1000
"""The most queries that wait for the answer to one question; further ones get SERVFAIL."""

FlightKey: TypeAlias = tuple[bytes, bool]
"""The key of a question, and whether it came over a stream."""
T = TypeVar("T")


class Question(Value, frozen=True):
    """A request with its key and counters, and the directives behind the cache."""

    request: Request
    later: Serve
    key: bytes
    counts: Counts


class FetchResult(Value, frozen=True):
    """The reply for the first client, and its contents.

    `item` is the item made of the reply, if later queries get the same bytes.
    """

    reply: Reply
    contents: Contents = OTHER
    item: Item | None = None

    @property
    def is_private(self) -> bool:
        """The reply is for the first client only: others must fetch their own."""
        return self.reply is not None and self.reply.reuse is PRIVATE


CROWDED: Final = FetchResult(Response(SERVFAIL, plugin="cache", error=f"{MAX_WAITERS} queries wait for this answer"))


class Flight(Value, frozen=True):
    """A question in flight: the first client fetches, the others wait for the outcome."""

    waiters: list[Future[FetchResult | None]]

    def join(self, future: Future[FetchResult | None]) -> Future[FetchResult | None]:
        self.waiters.append(future)
        return future

    def finish(self, outcome: FetchResult | None) -> None:
        """None if the first client left, so another has to fetch."""
        for waiter in self.waiters:
            resolve(waiter, outcome)


class Flights:
    """All questions in flight; `store` makes an item of a reply if it is cacheable."""

    def __init__(
        self,
        store: Callable[[Question, Reply], FetchResult],
        future: Callable[[], Future[FetchResult | None]],
    ) -> None:
        self.by_key: dict[FlightKey, Flight] = {}
        self._store = store
        self._future = future

    def fetch(self, question: Question, result: Callable[[FetchResult, Question], T]) -> T | Awaitable[T]:
        """Queries the next directive, unless the same question is in flight; returns `result` of the outcome."""
        key = question.key, question.request.transport != "udp"
        flight = self.by_key.get(key)
        if flight is not None:
            if len(flight.waiters) >= MAX_WAITERS:
                return result(CROWDED, question)
            return self._wait(flight.join(self._future()), question, result)
        reply = question.later(_for_all(question.request))
        if reply is None or isinstance(reply, Response):
            return result(self._store(question, reply), question)
        return self._lead(key, reply, question, result)

    async def _lead(
        self, key: FlightKey, reply: Awaitable[Reply], question: Question, result: Callable[[FetchResult, Question], T]
    ) -> T:
        flight = Flight([])
        self.by_key.setdefault(key, flight)  # not in `fetch`: this coroutine may never start
        outcome: FetchResult | None = None
        try:
            outcome = self._store(question, await reply)
        finally:  # also if the coroutine is closed because the client is gone
            if self.by_key.get(key) is flight:
                del self.by_key[key]
            if flight.waiters:
                flight.finish(outcome)
        return result(outcome, question)

    async def _wait(
        self,
        future: Future[FetchResult | None],
        question: Question,
        result: Callable[[FetchResult, Question], T],
    ) -> T:
        outcome = await future
        if outcome is None:
            retry = self.fetch(question, unchanged)
            outcome = retry if isinstance(retry, FetchResult) else await retry
        elif outcome.is_private:
            outcome = await self.fetch_alone(question)
        return result(outcome, question)

    async def fetch_alone(self, question: Question) -> FetchResult:
        return self._store(question, await awaited(question.later(_for_all(question.request))))


def unchanged(outcome: FetchResult, _question: Question) -> FetchResult:
    return outcome


def resolve(future: Future[FetchResult | None], outcome: FetchResult | None) -> None:
    if not future.done():
        future.set_result(outcome)


def _for_all(request: Request) -> Request:
    """The request on behalf of all clients: with AD (RFC 6840 §5.7), and without this client's EDNS options.

    With them, other clients would get an answer for this client's network (RFC 7871), or an option's error.
    """
    query = request.query
    edns = query.edns
    if edns is not None and edns.options != request.options:
        edns = edns._replace(options=request.options)
        return evolve(request, query=query.changed(flags=query.flags | AD, edns=edns))
    if query.flags & AD:
        return request
    packet = query.packet
    packet = b"".join((packet[:3], bytes((packet[3] | AD,)), packet[4:]))
    return evolve(request, query=evolve(query, packet=packet, flags=query.flags | AD))
