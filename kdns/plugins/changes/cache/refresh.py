"""Refreshes items in the background: popular ones before they expire, and stale ones."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import Final

from kdns.answers.response import NEVER
from kdns.plugins.changes.cache.config import CacheConfig, PrefetchConfig
from kdns.plugins.changes.cache.flights import FetchResult, Flight, Flights, Question, resolve, unchanged
from kdns.plugins.changes.cache.items import Items
from kdns.plugins.changes.cache.kinds import AnswerKind
from kdns.plugins.changes.cache.store import Item
from kdns.serverblocks.directive import World
from kdns.values import evolve

MAX_REFRESHES: Final = 100
"""The most concurrent refreshes."""
REFRESH_GAP_S: Final = 1.0
"""The time between two attempts to refresh an item, and the longest that the table hides uses from `prefetch`."""


class Refreshes:
    """The refreshes in flight, by the key of their item."""

    def __init__(self, config: CacheConfig, items: Items, flights: Flights, world: World) -> None:
        self._config = config
        self._items = items
        self._flights = flights
        self._world = world
        self._by_key: dict[bytes, Flight] = {}
        self._is_stopped = False
        items.is_refreshing = self._by_key.__contains__
        world.on_stop(self._stop)

    def begin(self, item: Item, question: Question) -> bool:
        """Starts a refresh over TCP, which is hard to forge, as CoreDNS does. False at the limits."""
        request = question.request
        item.next_refresh_s = request.received_s + REFRESH_GAP_S
        if item.key in self._by_key or len(self._by_key) >= MAX_REFRESHES or self._is_stopped:
            return False
        self._by_key[item.key] = Flight([])
        over_tcp = evolve(question, request=evolve(request, transport="tcp"))
        self._world.spawn(partial(self._run, item, over_tcp))
        return True

    async def outcome(self, item: Item, question: Question, timeout_s: float) -> FetchResult | None:
        """Waits for an item's refresh; None if it fails or times out; `timeout_s` 0: no timeout."""
        if question.request.received_s >= item.next_refresh_s:
            self.begin(item, question)
        flight = self._by_key.get(item.key)
        if flight is None:
            return None
        future = flight.join(self._world.future())
        if timeout_s:
            self._world.call_later(timeout_s, partial(resolve, future, None))
        outcome = await future
        if outcome is not None and outcome.is_private:
            outcome = await self._flights.fetch_alone(question)
        return outcome if outcome is not None and self._replaces(item, outcome) else None

    def is_in_flight(self, item: Item) -> bool:
        return item.key in self._by_key

    async def _run(self, item: Item, question: Question) -> None:
        outcome: FetchResult | None = None
        is_replaced = False
        try:
            fetched = self._flights.fetch(question, unchanged)
            outcome = fetched if isinstance(fetched, FetchResult) else await fetched
            is_replaced = self._replaces(item, outcome)
            if is_replaced and outcome.reply and outcome.reply.reuse is not NEVER:
                self._items.remove(item)  # a later directive now answers with subjects: no new item replaces this one
        finally:
            stale = self._config.stale
            if stale and not is_replaced and (stale.recheck_s or stale.verify):
                item.next_refresh_s = self._world.now_s() + stale.recheck_s if stale.recheck_s else 0.0
            if flight := self._by_key.pop(item.key, None):
                flight.finish(outcome)

    def _stop(self) -> None:
        self._is_stopped = True
        while self._by_key:
            _, flight = self._by_key.popitem()
            flight.finish(None)

    def _replaces(self, item: Item, outcome: FetchResult) -> bool:
        """With `prefer_positive` only records replace records."""
        if self._config.prefer_positive and item.kind is AnswerKind.SUCCESS:
            return outcome.contents.kind is AnswerKind.SUCCESS
        return outcome.contents.is_valid


def note_use(item: Item, prefetch: PrefetchConfig, now_s: float) -> bool:
    """True if the item is popular and expires soon, so that it is worth a prefetch."""
    if now_s - item.last_s > prefetch.gap_s:
        item.uses_before = item.uses.count
    item.last_s = now_s
    left_s = item.ttl_s - int(now_s - item.stored_s)
    return (
        item.uses.count + 1 - item.uses_before >= prefetch.amount
        and left_s <= ceil(prefetch.percent / 100 * item.ttl_s)
        and item.kind is not AnswerKind.FAILURE
    )
