"""Which replies become items, for how long, and which of several items answers."""

from __future__ import annotations

from collections.abc import Callable

from kdns.answers.chain import Reply, is_end
from kdns.answers.response import NEVER, Message, Response
from kdns.dns.names import ZoneSet
from kdns.dns.query import HEADER_BYTES
from kdns.dns.types import EXTENDED_ERROR, NOERROR, NXDOMAIN
from kdns.plugins.changes.cache.config import CacheConfig
from kdns.plugins.changes.cache.flights import FetchResult, Question
from kdns.plugins.changes.cache.kinds import AnswerKind, Contents, capped, contents, with_ttl
from kdns.plugins.changes.cache.store import Item, Store
from kdns.serverblocks.directive import World


class Items:
    """The items of one cache; `denial` also has the failures.

    `is_refreshing(key)`: the new item of a key comes from a refresh of the old one.
    """

    def __init__(self, config: CacheConfig, world: World) -> None:
        self.success = Store(config.success.capacity)
        self.denial = Store(config.denial.capacity)
        self.is_refreshing: Callable[[bytes], bool] = lambda _: False
        self._config = config
        self._world = world
        self._stale_s = config.stale.max_age_s if config.stale else 0.0
        success, denial = ZoneSet(config.disabled_success), ZoneSet(config.disabled_denial)
        disabled = {AnswerKind.SUCCESS: success, AnswerKind.DENIAL: denial, AnswerKind.FAILURE: denial}
        self._disabled = {kind: zones for kind, zones in disabled.items() if zones}

    def pick(self, key: bytes, now_s: float) -> Item | None:
        """The item that answers now: fresh before stale, and a stale answer before a failure.

        With `prefer_positive` a stale positive answer comes before a fresh negative one.
        """
        positive, negative = self.success.get(key), self.denial.get(key)
        if positive is not None:
            if now_s < positive.end_s:
                return positive
            if now_s >= positive.end_s + self._stale_s:
                positive = None
        if negative is not None and now_s < negative.end_s:
            is_hidden = self._config.prefer_positive or negative.kind is AnswerKind.FAILURE
            return positive if positive is not None and is_hidden else negative
        if positive is not None:
            return positive
        if negative is not None and negative.kind is AnswerKind.DENIAL and now_s < negative.end_s + self._stale_s:
            return negative
        return None

    def store(self, question: Question, reply: Reply) -> FetchResult:
        if reply is None or (reply.body is None and is_end(reply)):
            return FetchResult(reply)
        config, query, body = self._config, question.request.query, reply.body
        if reply.reuse is not NEVER:
            reply = capped(reply, config.success.max_ttl_s, config.denial.max_ttl_s)
            return FetchResult(reply, Contents(AnswerKind.OTHER, is_valid=reply.rcode in {NOERROR, NXDOMAIN}))
        if isinstance(body, Message):
            end, wire = query.question_end, body.wire
            own = query.packet[HEADER_BYTES:end]
            if not wire.startswith(own, HEADER_BYTES) and wire[HEADER_BYTES:end].lower() != own.lower():
                question.counts.drops.count += 1  # about another question
                return FetchResult(reply)
        try:
            content = contents(query, reply, self._world.unix_s)
        except ValueError:
            return FetchResult(reply)
        kind = content.kind
        if kind is AnswerKind.OTHER:
            return FetchResult(reply, content)
        if kind is AnswerKind.FAILURE:
            ttl_s = config.failure_ttl_s
        else:
            ttl_s = (config.success if kind is AnswerKind.SUCCESS else config.denial).clamped(content.ttl_s)
        reply = with_ttl(reply, int(ttl_s), content.ttls_at)
        disabled = self._disabled.get(kind)
        if not ttl_s or (disabled is not None and query.labels in disabled):
            return FetchResult(reply, content)
        item = self._put(question, kind, reply, ttl_s)
        # `prefetch` has to see every use of an item
        is_repeated = config.prefetch is None and isinstance(body, Message)
        if reply.options and later_options(reply) != reply.options:
            is_repeated = False
        return FetchResult(reply, content, item if is_repeated else None)

    def _put(self, question: Question, kind: AnswerKind, reply: Response, ttl_s: float) -> Item | None:
        """None if the old item stays: failures replace only failures, with `prefer_positive` denials no records."""
        key, now_s = question.key, self._world.now_s()
        old = self.pick(key, now_s)
        item = Item.of(key, kind, reply, now_s, ttl_s)
        if old is not None:
            if kind is AnswerKind.FAILURE and old.kind is not AnswerKind.FAILURE:
                return None
            if kind is AnswerKind.DENIAL and old.kind is AnswerKind.SUCCESS and self._config.prefer_positive:
                return None
            if self.is_refreshing(key):
                item.uses, item.uses_seen = old.uses, old.uses_seen
                item.uses_before, item.last_s = old.uses_before, old.last_s
            if old.reused_until_s > now_s:
                self._world.forget((key,))
        to, other = (self.success, self.denial) if kind is AnswerKind.SUCCESS else (self.denial, self.success)
        if evictions := to.put(item, self._was_used):
            question.counts.evictions[kind].count += evictions
        if other.get(key) is not None:
            other.remove(key)
        return item

    def remove(self, item: Item) -> None:
        self.success.remove(item.key)
        self.denial.remove(item.key)
        self._world.forget((item.key,))

    def _was_used(self, item: Item) -> bool:
        if item.reused_until_s:
            self._world.settle(item.key)
        was_used = item.was_used or item.uses.count > item.uses_seen
        item.was_used, item.uses_seen = False, item.uses.count
        return was_used


def later_options(reply: Response) -> tuple[tuple[int, bytes], ...]:
    """The EDNS options that answers from the cache repeat: the reason for an error."""
    return tuple(option for option in reply.options if option[0] == EXTENDED_ERROR)
