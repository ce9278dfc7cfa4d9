"""The `cache` directive in the chain.

What a later directive says for one query only is kept for its TTL. What names its subjects, such as an answer about
the cluster, is exact without a cache: it is passed on unchanged, and the answer table keeps it until it changes.

Differs: such answers are not kept here, so they are fresh at once; CoreDNS keeps them for their TTL.
Differs: an answer from the cache has no AA, and the client's spelling (RFC 1035 §4.1.1); CoreDNS sets AA.
Differs: SERVFAIL that a directive says, of an upstream that is down for example, is kept too (RFC 9520 §3.2).
Differs: stale records have a TTL of 30 s unless another one is configured (RFC 8767 §4), and are marked as stale for
clients with EDNS (RFC 8914 §4.4); in CoreDNS their TTL is 0.
Differs: only NOERROR and NXDOMAIN take the place of a stale answer (RFC 8767 §5); in CoreDNS, SERVFAIL does.
Differs: options of a client's EDNS stay in front of the cache; in CoreDNS the answer for one network is given to all.
Differs: the same question is asked once at a time, and a stale answer asks for a new one once in a second.
Differs: what a later directive made of facts about the client is for that client alone: its reply is PRIVATE, so it is
neither kept nor given to those who wait; CoreDNS gives it to all clients.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from math import ceil
from typing import Final, NamedTuple, TypeAlias, TypeVar

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, Source, awaited, is_end
from kdns.answers.response import NEVER, PRIVATE, Message, Repeat, Response, Reuse
from kdns.dns.names import Labels, ZoneSet
from kdns.dns.query import AA, AD, HEADER_BYTES, RD, Query, stale_mark
from kdns.dns.types import EXTENDED_ERROR, NOERROR, NXDOMAIN, SERVFAIL, TRANSFERS
from kdns.plugins.changes.cache.config import (
    OPTIONS,
    STALE_TTL_S,
    CacheConfig,
    PrefetchConfig,
    StaleConfig,
    parse,
)
from kdns.plugins.changes.cache.kinds import (
    OTHER,
    AnswerKind,
    Contents,
    capped,
    contents,
    with_ttl,
    without_flags,
)
from kdns.plugins.changes.cache.store import Item, Store, question_key, recursive_key
from kdns.serverblocks.directive import Directive, Future, Sample, World
from kdns.tally import Tally
from kdns.values import Value, evolve

NAME: Final = "cache"
MAX_WAITERS: Final = 1000
"""The most queries that wait for the answer to one question; more get SERVFAIL."""
MAX_REFRESHES: Final = 100
"""The maximum of concurrent background refreshes."""
REFRESH_GAP_S: Final = 1.0
"""The time between two attempts to refresh an item, and the longest that the table hides uses from `prefetch`."""

_AA: Final = AA >> 8
_LABELS: Final = ("server", "zones", "view")
_TYPED: Final = ("server", "type", "zones", "view")
_TYPES: Final = {AnswerKind.SUCCESS: "success", AnswerKind.DENIAL: "denial", AnswerKind.FAILURE: "denial"}


class Counts(NamedTuple):
    """The counters of one server and view."""

    requests: Tally
    misses: Tally
    hits: dict[AnswerKind, Tally]
    stale: Tally
    prefetches: Tally
    drops: Tally
    evictions: dict[AnswerKind, Tally]


class Question(Value, frozen=True):
    """A request with its key, its counters, and the directives behind the cache."""

    request: Request
    later: Serve
    key: bytes
    counts: Counts


class FetchResult(Value, frozen=True):
    """The result of a fetch: the reply for the client that asked first, and its contents.

    `item` is the item that the reply became, if later queries get the same bytes.
    """

    reply: Reply
    contents: Contents = OTHER
    item: Item | None = None

    @property
    def is_private(self) -> bool:
        """Whether the reply is for one client only, so that others have to ask for themselves."""
        return self.reply is not None and self.reply.reuse is PRIVATE


CROWDED: Final = FetchResult(Response(SERVFAIL, plugin=NAME, error=f"{MAX_WAITERS} queries wait for this answer"))

FlightKey: TypeAlias = tuple[bytes, bool]
"""The key of a question, and whether it is asked over a stream."""
Made = TypeVar("Made")


class Flight:
    """A question in flight. The first client asks; those who ask the same meanwhile wait for the outcome."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: list[Future[FetchResult | None]] = []

    def join(self, future: Future[FetchResult | None]) -> Future[FetchResult | None]:
        self.waiters.append(future)
        return future

    def finish(self, outcome: FetchResult | None) -> None:
        """Gives everybody the outcome; None if the first client left, so the next one has to ask."""
        for waiter in self.waiters:
            _give(waiter, outcome)


class Cache(Plugin):
    """Answers from its items, and keeps the replies of later directives."""

    sees = Sees.PACKET
    plugin = NAME

    def __init__(self, config: CacheConfig, setup: World) -> None:
        self.config = config
        self._setup = setup
        self._zones = ZoneSet(config.zones)
        self._disabled = {
            kind: ZoneSet(zones)
            for kind, zones in (
                (AnswerKind.SUCCESS, config.disabled_success),
                (AnswerKind.DENIAL, config.disabled_denial),
                (AnswerKind.FAILURE, config.disabled_denial),
            )
            if zones
        }
        self._zones_label = ",".join(config.zones)
        self._counts: dict[tuple[str, str], Counts] = {}
        self.success = Store(config.success.capacity)
        self.denial = Store(config.denial.capacity)
        self.flights: dict[FlightKey, Flight] = {}
        self._refreshes: dict[bytes, Flight] = {}
        self._is_stopped = False
        self._stale = config.stale if config.stale and config.stale.max_age_s else None
        self._families = {
            name: setup.counters(f"coredns_cache_{name}", text, labels) for name, text, labels in FAMILIES
        }
        setup.on_stop(self._stop)
        setup.expose("coredns_cache_entries", "Replies in the cache.", _TYPED, self._entries)

    def serve(self, request: Request, next: Serve) -> Reply | Awaitable[Reply]:  # noqa: A002 - as in Plugin
        """Returns the item of the question, or the next directive's reply, which becomes an item."""
        query = request.query
        if query.qtype in TRANSFERS or self._zones.closest(query.labels) is None:
            return next(request)
        if request.is_dry_run:
            return self._dry_run(request, next)
        return self._serve(next, request)

    def _serve(self, later: Serve, request: Request) -> Reply | Awaitable[Reply]:
        query = request.query
        counts = self._counts.get((request.server, request.view)) or self._counts_of(request.server, request.view)
        question = Question(request, later, question_key(query), counts)
        item = self.pick(question.key, request.received_s)
        if item is None and not query.flags & RD:
            item = self.pick(recursive_key(question.key), request.received_s)
            if item is not None and item.kind is not AnswerKind.FAILURE and request.received_s < item.end_s:
                item.was_used = True
                tallies = (counts.requests, counts.hits[item.kind])
                return _for_client(item.response, query, tallies, item.reuse(item.end_s))
            item = None
        if item is None:
            return self._fetch(question, _reply_for_miss)
        item.was_used = True
        if request.received_s < item.end_s:
            return self._fresh(item, question)
        return self._expired(item, question)

    def _dry_run(self, request: Request, next: Serve) -> Reply | Awaitable[Reply]:  # noqa: A002 - as in Plugin
        """Returns the item of the question, without counting or refreshing it, or the next directive's reply."""
        item = self.pick(question_key(request.query), request.received_s)
        if item is None or (request.received_s >= item.end_s and self._stale and self._stale.verify):
            return next(request)
        response = _for_client(item.response, request.query, ())
        if request.received_s < item.end_s or self._stale is None:
            return response
        return evolve(with_ttl(response, self._stale.ttl_s or STALE_TTL_S), aged_from_s=None)

    def plain_zones(self) -> Iterable[Labels]:
        return self._zones

    def linked(self, zone: Labels, later: Serve) -> Serve:
        del zone
        return partial(self._serve, later)

    def source(self, zone: Labels, later: Source | None, server: str) -> Source | None:
        """Replies that name their subjects are not kept; but an item of a name that fell through before comes first."""
        del zone
        if later is None or later.ttl_s > min(self.config.success.max_ttl_s, self.config.denial.max_ttl_s):
            return None
        counts = self._counts_of(server, "")
        is_answered = self._has_item if later.falls_through else None
        return evolve(later, tallies=(*later.tallies, counts.requests, counts.misses), is_answered=is_answered)

    def _has_item(self, request: Request) -> bool:
        key = question_key(request.query)
        return self.success.get(key) is not None or self.denial.get(key) is not None

    def pick(self, key: bytes, now_s: float) -> Item | None:
        """Returns the item that answers at this time: fresh before stale, and a stale answer before a failure.

        With `prefer_positive` a stale answer with records comes before a fresh one without.
        """
        positive = self.success.get(key)
        if positive is not None and now_s < positive.end_s:
            return positive
        negative = self.denial.get(key)
        if positive is None and negative is None:
            return None
        stale_s = self._stale.max_age_s if self._stale else 0.0
        if positive is not None and now_s >= positive.end_s + stale_s:
            positive = None
        if negative is not None and now_s < negative.end_s:
            is_hidden = self.config.prefer_positive or negative.kind is AnswerKind.FAILURE
            return positive if positive is not None and is_hidden else negative
        if positive is not None:
            return positive
        if negative is not None and negative.kind is AnswerKind.DENIAL and now_s < negative.end_s + stale_s:
            return negative
        return None

    # Answers

    def _fresh(self, item: Item, question: Question) -> Reply:
        request, counts = question.request, question.counts
        end_s = item.end_s
        if self.config.prefetch is not None:
            now_s = request.received_s
            if _is_popular(item, self.config.prefetch, now_s) and now_s >= item.next_refresh_s:
                counts.prefetches.count += self._refresh(item, question)
            end_s = min(end_s, now_s + REFRESH_GAP_S)
        tallies = (counts.requests, counts.hits[item.kind], item.uses)
        return _for_client(item.response, request.query, tallies, item.reuse(end_s))

    def _expired(self, item: Item, question: Question) -> Reply | Awaitable[Reply]:
        """Returns a stale answer, or with `verify` a new one if it arrives in time."""
        stale = self._stale or StaleConfig()
        is_due = question.request.received_s >= item.next_refresh_s
        if stale.verify and (is_due or item.key in self._refreshes):
            return self._verified(item, question, stale)
        if is_due:
            self._refresh(item, question)
        return self._stale_answer(item, question, stale)

    def _stale_answer(self, item: Item, question: Question, stale: StaleConfig) -> Response:
        request, counts = question.request, question.counts
        tallies = (counts.requests, counts.hits[item.kind], counts.stale)
        reuse = item.reuse(min(item.next_refresh_s, item.end_s + stale.max_age_s))
        response = with_ttl(_for_client(item.response, request.query, tallies, reuse), stale.ttl_s or STALE_TTL_S)
        return evolve(response, options=(stale_mark(response.rcode),), aged_from_s=None)

    async def _verified(self, item: Item, question: Question, stale: StaleConfig) -> Reply:
        if self._refresh(item, question) or item.key in self._refreshes:
            future = self._refreshes[item.key].join(self._setup.future())
            if stale.timeout_s:
                self._setup.call_later(stale.timeout_s, partial(_give, future, None))
            outcome = await future
            if outcome is not None and outcome.is_private:
                outcome = await self._own(question)
            if outcome is not None and self._is_refreshed(item, outcome):
                counts = question.counts
                return _reply_for_client(
                    outcome.reply, question.request.query, (counts.requests, counts.hits[item.kind])
                )
        return evolve(self._stale_answer(item, question, stale), reuse=NEVER)

    # Questions to the later directives

    def _fetch(self, question: Question, made: Callable[[FetchResult, Question], Made]) -> Made | Awaitable[Made]:
        """Queries the next directive, unless the same question is in flight; a cacheable reply becomes an item.

        Returns the value that is `made` of the outcome.
        """
        request, later, key = question.request, question.later, question.key
        flight_key = key, request.transport != "udp"
        flight = self.flights.get(flight_key)
        if flight is not None:
            if len(flight.waiters) >= MAX_WAITERS:
                return made(CROWDED, question)
            return self._wait(flight.join(self._setup.future()), question, made)
        reply = later(_for_all(request))
        if reply is None or isinstance(reply, Response):
            return made(self._store_reply(question, reply), question)
        return self._lead(flight_key, reply, question, made)

    async def _lead(
        self,
        key: FlightKey,
        reply: Awaitable[Reply],
        question: Question,
        made: Callable[[FetchResult, Question], Made],
    ) -> Made:
        flight = Flight()
        self.flights.setdefault(key, flight)  # here, not in _fetch: a coroutine that never starts leaves nothing
        outcome: FetchResult | None = None
        try:
            outcome = self._store_reply(question, await reply)
        finally:  # also for a client that left: the coroutine is closed
            if self.flights.get(key) is flight:
                del self.flights[key]
            if flight.waiters:
                flight.finish(outcome)
        return made(outcome, question)

    async def _wait(
        self,
        future: Future[FetchResult | None],
        question: Question,
        made: Callable[[FetchResult, Question], Made],
    ) -> Made:
        outcome = await future
        if outcome is None:
            again = self._fetch(question, _identity)
            outcome = again if isinstance(again, FetchResult) else await again
        elif outcome.is_private:
            outcome = await self._own(question)
        return made(outcome, question)

    async def _own(self, question: Question) -> FetchResult:
        """Returns the outcome for this client alone."""
        return self._store_reply(question, await awaited(question.later(_for_all(question.request))))

    def _refresh(self, item: Item, question: Question) -> bool:
        """Refreshes an item in the background, over TCP as CoreDNS does: the reply is complete and hard to forge.

        Returns whether a refresh began: False if one is in flight, or too many are.
        """
        request = question.request
        item.next_refresh_s = request.received_s + REFRESH_GAP_S
        if item.key in self._refreshes or len(self._refreshes) >= MAX_REFRESHES or self._is_stopped:
            return False
        self._refreshes[item.key] = Flight()
        over_tcp = evolve(question, request=evolve(request, transport="tcp"))
        self._setup.spawn(partial(self._refreshing, item, over_tcp))
        return True

    async def _refreshing(self, item: Item, question: Question) -> None:
        outcome: FetchResult | None = None
        try:
            fetched = self._fetch(question, _identity)
            outcome = fetched if isinstance(fetched, FetchResult) else await fetched
            if outcome.reply and outcome.reply.reuse is not NEVER and self._is_refreshed(item, outcome):
                self._drop(item)  # a later directive answers for the name now, and nothing replaces the item
        finally:
            if self._stale and not (outcome and self._is_refreshed(item, outcome)):
                item.next_refresh_s = self._next_attempt_s(item, self._stale)
            if flight := self._refreshes.pop(item.key, None):
                flight.finish(outcome)

    def _stop(self) -> None:
        """Stops refreshing: waiting clients get the stale answer."""
        self._is_stopped = True
        while self._refreshes:
            _, flight = self._refreshes.popitem()
            flight.finish(None)

    def _next_attempt_s(self, item: Item, stale: StaleConfig) -> float:
        if stale.recheck_s:
            return self._setup.now_s() + stale.recheck_s
        return 0.0 if stale.verify else item.next_refresh_s

    def _is_refreshed(self, item: Item, outcome: FetchResult) -> bool:
        """Returns whether a reply replaces an item.

        With `prefer_positive` records are only replaced by records.
        """
        if self.config.prefer_positive and item.kind is AnswerKind.SUCCESS:
            return outcome.contents.kind is AnswerKind.SUCCESS
        return outcome.contents.is_valid

    # Items

    def _store_reply(self, question: Question, reply: Reply) -> FetchResult:
        """Returns a reply with the cache's TTL, and keeps it if it is cacheable."""
        if reply is None or (reply.body is None and is_end(reply)):
            return FetchResult(reply)
        if reply.reuse is not NEVER:
            reply = capped(reply, self.config.success.max_ttl_s, self.config.denial.max_ttl_s)
            return FetchResult(reply, Contents(AnswerKind.OTHER, is_valid=reply.rcode in {NOERROR, NXDOMAIN}))
        query = question.request.query
        body = reply.body
        if isinstance(body, Message):
            end, wire = query.question_end, body.wire
            own = query.packet[HEADER_BYTES:end]
            if not wire.startswith(own, HEADER_BYTES) and wire[HEADER_BYTES:end].lower() != own.lower():
                question.counts.drops.count += 1  # it is about another question
                return FetchResult(reply)
        try:
            found = contents(query, reply, self._setup.unix_s)
        except ValueError:
            return FetchResult(reply)
        if found.kind is AnswerKind.OTHER:
            return FetchResult(reply, found)
        config = self.config
        limits = config.success if found.kind is AnswerKind.SUCCESS else config.denial
        ttl_s = config.failure_ttl_s if found.kind is AnswerKind.FAILURE else limits.clamped(found.ttl_s)
        reply = with_ttl(reply, int(ttl_s), found.ttls_at)
        disabled = self._disabled.get(found.kind)
        if not ttl_s or (disabled is not None and query.labels in disabled):
            return FetchResult(reply, found)
        now_s = self._setup.now_s()
        without_aa = reply if isinstance(body, Message) and not body.wire[2] & _AA else without_flags(reply, AA)
        response = Response(
            reply.rcode,
            without_aa.flags,
            reply.answer,
            reply.authority,
            reply.additional,
            plugin=NAME,
            options=tuple(option for option in reply.options if option[0] == EXTENDED_ERROR) if reply.options else (),
            body=without_aa.body,
            header=reply.header,
            aged_from_s=None if config.keep_ttl else now_s,
        )
        item = self.put(question.key, question.counts, found.kind, response, ttl_s, now_s)
        # `prefetch` has to see the uses of an item from the first one on
        is_repeated = item is not None and config.prefetch is None and isinstance(body, Message)
        is_repeated = is_repeated and reply.options == response.options
        return FetchResult(reply, found, item if is_repeated else None)

    def _drop(self, item: Item) -> None:
        self.success.remove(item.key)
        self.denial.remove(item.key)
        self._setup.forget((item.key,))

    def put(
        self, key: bytes, counts: Counts, kind: AnswerKind, response: Response, ttl_s: float, now_s: float
    ) -> Item | None:
        """Returns the item of a response; None if another item stays.

        A failure replaces no other item; with `prefer_positive` a denial replaces no records.
        """
        old = self.pick(key, now_s)
        if old is not None and kind is AnswerKind.FAILURE and old.kind is not AnswerKind.FAILURE:
            return None
        if (
            old is not None
            and kind is AnswerKind.DENIAL
            and old.kind is AnswerKind.SUCCESS
            and self.config.prefer_positive
        ):
            return None
        item = Item.of(key, kind, response, now_s, ttl_s)
        if old is not None and key in self._refreshes:
            item.uses, item.uses_seen, item.uses_before, item.last_s = (
                old.uses,
                old.uses_seen,
                old.uses_before,
                old.last_s,
            )
        to, other = (self.success, self.denial) if kind is AnswerKind.SUCCESS else (self.denial, self.success)
        counts.evictions[kind].count += to.put(item, self._was_used)
        if other.get(key):
            other.remove(key)
        if old is not None and old.reused_until_s > now_s:
            self._setup.forget((key,))
        return item

    def _was_used(self, item: Item) -> bool:
        """Returns whether an item was used since the last call, by the directive or through the table."""
        if item.reused_until_s:
            self._setup.settle(item.key)
        was_used = item.was_used or item.uses.count > item.uses_seen
        item.was_used, item.uses_seen = False, item.uses.count
        return was_used

    # Metrics

    def _counts_of(self, server: str, view: str) -> Counts:
        counts = self._counts.get((server, view))
        if counts is None:
            counts = self._counts[server, view] = self._new_counts(server, view)
        return counts

    def _new_counts(self, server: str, view: str) -> Counts:
        zones = self._zones_label
        families = self._families
        plain = [
            families[name].tally(server, zones, view)
            for name in ("requests", "misses", "served_stale", "prefetch", "drops")
        ]
        requests, misses, stale, prefetches, drops = plain
        hits = {kind: families["hits"].tally(server, name, zones, view) for kind, name in _TYPES.items()}
        evictions = {kind: families["evictions"].tally(server, name, zones, view) for kind, name in _TYPES.items()}
        return Counts(requests, misses, hits, stale, prefetches, drops, evictions)

    def _entries(self) -> Iterable[Sample]:
        for server, view in self._counts:
            for name, store in (("success", self.success), ("denial", self.denial)):
                yield (server, name, self._zones_label, view), len(store)


FAMILIES: Final = (
    ("requests", "Queries for names that the cache covers.", _LABELS),
    ("hits", "Queries answered from the cache.", _TYPED),
    ("misses", "Queries without a reply in the cache.", _LABELS),
    ("served_stale", "Answers whose TTL had passed.", _LABELS),
    ("prefetch", "Replies that were refreshed before their TTL had passed.", _LABELS),
    ("drops", "Replies that were not about the question.", _LABELS),
    ("evictions", "Replies that were evicted because the cache was full.", _TYPED),
)


def _identity(outcome: FetchResult, _question: Question) -> FetchResult:
    return outcome


def _reply_for_miss(outcome: FetchResult, question: Question) -> Reply:
    """Returns the reply for the client of the query; the table gets the next one, if only clients wait for it."""
    request, counts = question.request, question.counts
    reply, item = outcome.reply, outcome.item
    if reply is None or item is None or request.depth:
        return _reply_for_client(reply, request.query, (counts.requests, counts.misses))
    tallies = (*reply.tallies, counts.requests, counts.misses)
    hit = (counts.requests, counts.hits[item.kind], item.uses)
    repeat = Repeat(NAME, hit, len(tallies), item.response.aged_from_s)
    return _for_client(reply, request.query, tallies, item.reuse(item.end_s, repeat))


def _reply_for_client(reply: Reply, query: Query, tallies: tuple[Tally, ...]) -> Reply:
    """Returns a reply of the later directives for one client, counted when it is sent."""
    if reply is None or is_end(reply):
        for tally in tallies:
            tally.count += 1
        return reply
    return _for_client(reply, query, (*reply.tallies, *tallies))


def _for_client(response: Response, query: Query, tallies: tuple[Tally, ...], reuse: Reuse | None = None) -> Response:
    """Returns the response with the client's spelling, and AD if the query sets AD or DO (RFC 6840 §5.8)."""
    edns, body = query.edns, response.body
    has_no_ad = isinstance(body, Message) and not body.wire[3] & AD
    if not (has_no_ad or query.flags & AD or (edns is not None and edns.do)):
        response = without_flags(response, AD)
    body, end = response.body, query.question_end
    if isinstance(body, Message):
        question = query.packet[HEADER_BYTES:end]
        if not body.wire.startswith(question, HEADER_BYTES):
            body = evolve(body, wire=b"".join((body.wire[:HEADER_BYTES], question, body.wire[end:])))
    return evolve(response, body=body, tallies=tallies, reuse=response.reuse if reuse is None else reuse)


def _for_all(request: Request) -> Request:
    """Returns the request that is sent for all clients: with AD (RFC 6840 §5.7), and without options of EDNS.

    Otherwise an answer for one client's network (RFC 7871), or an error that an option causes, would be given to
    others.
    """
    query = request.query
    edns = query.edns
    if edns is not None and edns.options:
        bare = query.changed(flags=query.flags | AD, edns=edns._replace(options=()))
        return evolve(request, query=bare)
    if query.flags & AD:
        return request
    packet = query.packet
    packet = b"".join((packet[:3], bytes((packet[3] | AD,)), packet[4:]))
    return evolve(request, query=evolve(query, packet=packet, flags=query.flags | AD))


def _give(future: Future[FetchResult | None], outcome: FetchResult | None) -> None:
    """Gives a waiting client an outcome, if it still waits."""
    if not future.done():
        future.set_result(outcome)


def _is_popular(item: Item, prefetch: PrefetchConfig, now_s: float) -> bool:
    """Returns whether an item was used often enough, without a gap, and is in the last part of its TTL."""
    if now_s - item.last_s > prefetch.gap_s:
        item.uses_before = item.uses.count
    item.last_s = now_s
    left_s = item.ttl_s - int(now_s - item.stored_s)
    return (
        item.uses.count + 1 - item.uses_before >= prefetch.amount
        and left_s <= ceil(prefetch.percent / 100 * item.ttl_s)
        and item.kind is not AnswerKind.FAILURE
    )


DIRECTIVE: Final = Directive("cache [TTL] [ZONES...]", CacheConfig, Cache, OPTIONS, parse=parse)
