"""The `cache` directive in the chain.

Replies that a later directive returns for one query only are cached for their TTL. Replies with subjects, such as
answers about the cluster, pass unchanged: the answer table keeps them until a subject is forgotten.

Differs: so answers about the cluster are always fresh; CoreDNS caches them for their TTL.
Differs: an answer from the cache has no AA, and the client's spelling (RFC 1035 §4.1.1); CoreDNS sets AA.
Differs: SERVFAIL of a directive, for example because an upstream is down, is cached too (RFC 9520 §3.2).
Differs: stale records have a TTL of 30 s by default (RFC 8767 §4), and are marked as stale for clients with EDNS
(RFC 8914 §4.4); in CoreDNS their TTL is 0.
Differs: only NOERROR and NXDOMAIN replace a stale answer (RFC 8767 §5); in CoreDNS, SERVFAIL does too.
Differs: EDNS options of clients do not pass the cache, and those of directives are part of the question; CoreDNS gives
the answer for one network to all.
Differs: equal questions in flight are coalesced, and a stale answer is refreshed at most once a second.
Differs: a reply that depends on the client is PRIVATE: it is neither cached nor given to waiting clients; CoreDNS gives
it to all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, Source, is_end
from kdns.answers.response import NEVER, Message, Repeat, Response, Reuse
from kdns.dns.names import Labels, ZoneSet
from kdns.dns.query import AA, AD, HEADER_BYTES, RD, Query, stale_mark
from kdns.dns.types import TRANSFERS
from kdns.plugins.changes.cache.config import OPTIONS, STALE_TTL_S, CacheConfig, StaleConfig, parse
from kdns.plugins.changes.cache.counts import CountsByServer
from kdns.plugins.changes.cache.flights import FetchResult, Flights, Question
from kdns.plugins.changes.cache.items import Items, later_options
from kdns.plugins.changes.cache.kinds import AnswerKind, with_ttl, without_flags
from kdns.plugins.changes.cache.refresh import REFRESH_GAP_S, Refreshes, note_use
from kdns.plugins.changes.cache.store import Item, question_key, recursive_key
from kdns.serverblocks.directive import Directive, World
from kdns.tally import Tally
from kdns.values import evolve

NAME: Final = "cache"


class Cache(Plugin):
    """Answers from its items, and stores the replies of later directives."""

    sees = Sees.PACKET
    plugin = NAME

    def __init__(self, config: CacheConfig, world: World) -> None:
        if config.stale and not config.stale.max_age_s:
            config = replace(config, stale=None)
        self.config, self._stale = config, config.stale
        self._zones = ZoneSet(config.zones)
        self.items = Items(config, world)
        self.flights = Flights(self.items.store, world.future)
        self.refreshes = Refreshes(config, self.items, self.flights, world)
        self._counts = CountsByServer(world, ",".join(config.zones))
        self._counts.expose_entries(world, self.items.success, self.items.denial)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        query = request.query
        if query.qtype in TRANSFERS or self._zones.closest(query.labels) is None:
            return next(request)
        if request.is_dry_run:
            return self._dry_run(request, next)
        return self._serve(next, request)

    def _serve(self, later: Serve, request: Request) -> ServeResult:
        query, now_s = request.query, request.received_s
        question = Question(request, later, question_key(request), self._counts[request.server, request.view])
        item = self.items.pick(question.key, now_s)
        if item is None and not query.flags & RD:
            item = self.items.pick(recursive_key(question.key), now_s)
            if item is not None and (item.kind is AnswerKind.FAILURE or now_s >= item.end_s):
                item = None
        if item is None:
            return self.flights.fetch(question, self._missed)
        item.was_used = True
        return self._fresh(item, question) if now_s < item.end_s else self._expired(item, question)

    def _dry_run(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        item = self.items.pick(question_key(request), request.received_s)
        if item is None or (request.received_s >= item.end_s and self._stale and self._stale.verify):
            return next(request)
        response = self._of_item(item, request.query, (), NEVER)
        if request.received_s < item.end_s or self._stale is None:
            return response
        return evolve(with_ttl(response, self._stale.ttl_s or STALE_TTL_S), aged_from_s=None)

    def plain_zones(self) -> Iterable[Labels]:
        return self._zones

    def linked(self, zone: Labels, later: Serve) -> Serve:
        del zone
        return partial(self._serve, later)

    def source(self, zone: Labels, later: Source | None, server: str) -> Source | None:
        """Replies with subjects pass unchanged, unless there is an item of a name that fell through before."""
        del zone
        if later is None or later.ttl_s > min(self.config.success.max_ttl_s, self.config.denial.max_ttl_s):
            return None
        counts = self._counts[server, ""]
        is_answered = self._has_item if later.falls_through else None
        return evolve(later, tallies=(*later.tallies, counts.requests, counts.misses), is_answered=is_answered)

    def _has_item(self, request: Request) -> bool:
        key = question_key(request)
        return self.items.success.get(key) is not None or self.items.denial.get(key) is not None

    def _fresh(self, item: Item, question: Question) -> Reply:
        request, counts, prefetch = question.request, question.counts, self.config.prefetch
        end_s = item.end_s
        if prefetch is not None and item.key == question.key:
            now_s = request.received_s
            if note_use(item, prefetch, now_s) and now_s >= item.next_refresh_s:
                counts.prefetches.count += self.refreshes.begin(item, question)
            end_s = min(end_s, now_s + REFRESH_GAP_S)
        tallies = (counts.requests, counts.hits[item.kind], item.uses)
        return self._of_item(item, request.query, tallies, item.reuse(end_s))

    def _expired(self, item: Item, question: Question) -> ServeResult:
        stale = self._stale or StaleConfig()
        is_due = question.request.received_s >= item.next_refresh_s
        if stale.verify and (is_due or self.refreshes.is_in_flight(item)):
            return self._verified(item, question, stale)
        if is_due:
            self.refreshes.begin(item, question)
        return self._stale_answer(item, question, stale)

    def _stale_answer(self, item: Item, question: Question, stale: StaleConfig) -> Response:
        counts = question.counts
        tallies = (counts.requests, counts.hits[item.kind], counts.stale)
        reuse = item.reuse(min(item.next_refresh_s, item.end_s + stale.max_age_s))
        response = self._of_item(item, question.request.query, tallies, reuse)
        response = with_ttl(response, stale.ttl_s or STALE_TTL_S)
        return evolve(response, options=(stale_mark(response.rcode),), aged_from_s=None)

    async def _verified(self, item: Item, question: Question, stale: StaleConfig) -> Reply:
        outcome = await self.refreshes.outcome(item, question, stale.timeout_s)
        if outcome is None:
            return evolve(self._stale_answer(item, question, stale), reuse=NEVER)
        counts = question.counts
        return _for_client(outcome.reply, question.request.query, (counts.requests, counts.hits[item.kind]))

    def _missed(self, outcome: FetchResult, question: Question) -> Reply:
        """The reply for this client; if later clients get the same bytes, it says how the table repeats it."""
        request, counts = question.request, question.counts
        reply, item = outcome.reply, outcome.item
        if reply is None or item is None or request.depth:
            return _for_client(reply, request.query, (counts.requests, counts.misses))
        hit = (counts.requests, counts.hits[item.kind], item.uses)
        tallies = (*reply.tallies, counts.requests, counts.misses)
        repeat = Repeat(NAME, hit, len(tallies), None if self.config.keep_ttl else item.stored_s)
        return _spelled(reply, request.query, tallies, item.reuse(item.end_s, repeat))

    def _of_item(self, item: Item, query: Query, tallies: tuple[Tally, ...], reuse: Reuse) -> Response:
        """Without AA: the cache is no authority."""
        reply = without_flags(item.response, AA)
        response = Response(
            reply.rcode,
            reply.flags,
            reply.answer,
            reply.authority,
            reply.additional,
            plugin=NAME,
            options=later_options(reply),
            body=reply.body,
            header=reply.header,
            aged_from_s=None if self.config.keep_ttl else item.stored_s,
        )
        return _spelled(response, query, tallies, reuse)


def _for_client(reply: Reply, query: Query, tallies: tuple[Tally, ...]) -> Reply:
    if reply is None or is_end(reply):
        for tally in tallies:
            tally.count += 1
        return reply
    return _spelled(reply, query, (*reply.tallies, *tallies), reply.reuse)


def _spelled(response: Response, query: Query, tallies: tuple[Tally, ...], reuse: Reuse) -> Response:
    """With the client's spelling, and AD only if the query sets AD or DO (RFC 6840 §5.8)."""
    edns, body = query.edns, response.body
    if not isinstance(body, Message):
        if not (query.flags & AD or (edns is not None and edns.do)):
            response = without_flags(response, AD)
        return evolve(response, tallies=tallies, reuse=reuse)
    wire, end = body.wire, query.question_end
    question = query.packet[HEADER_BYTES:end]
    if not wire.startswith(question, HEADER_BYTES):
        body = Message(b"".join((wire[:HEADER_BYTES], question, wire[end:])), body.shape)
    response = evolve(response, body=body, tallies=tallies, reuse=reuse)
    if wire[3] & AD and not (query.flags & AD or (edns is not None and edns.do)):
        return without_flags(response, AD)
    return response


DIRECTIVE: Final = Directive("cache [TTL] [ZONES...]", CacheConfig, Cache, OPTIONS, parse=parse)
