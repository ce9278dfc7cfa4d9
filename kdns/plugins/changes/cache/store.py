"""Items by question, bounded by number and by bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from kdns.answers.chain import Request
from kdns.answers.response import Message, Repeat, Response, Reuse
from kdns.dns.query import CD, HEADER_BYTES, RD, encode_options
from kdns.plugins.changes.cache.kinds import AnswerKind
from kdns.tally import Tally

MAX_BYTES: Final = 64 << 20
"""The memory limit of the items of one kind, whatever their capacity."""
EVICTION_STEPS: Final = 8
"""The most used items that an eviction skips."""

_FLAGS: Final = tuple(bytes((flags,)) for flags in range(32))
_ITEM_BYTES: Final = 700
"""CPython's memory for an item, its response and its dict entry, beside the bytes of key and message."""
_RECORD_BYTES: Final = 250
_OPTION_BYTES: Final = 150


def question_key(request: Request) -> bytes:
    """Everything that a reply depends on: name, type, class, options of directives, DO, CD and RD.

    Differs: CoreDNS ignores class and RD, so a referral for a query without RD answers queries with RD.
    An answer with RD may answer a query without it, see `recursive_key`.
    """
    query = request.query
    packet, end, edns = query.packet, query.question_end, query.edns
    flags = (query.flags & (RD | CD)) >> 4 | (edns is not None and edns.do) << 1
    options = encode_options(request.options) if request.options else b""
    return packet[HEADER_BYTES : end - 4].lower() + packet[end - 4 : end] + options + _FLAGS[flags]


def recursive_key(key: bytes) -> bytes:
    """The key of the same question with RD, whose answer also answers it without RD (RFC 1034 §4.3.1)."""
    return key[:-1] + _FLAGS[key[-1] | RD >> 4]


class Item(msgspec.Struct, eq=False, gc=False):
    """One cached reply, with TTLs as of `stored_s`; times are on the event loop's clock.

    - Fresh until `end_s`; the table has answers made of it until `reused_until_s` at the latest.
    - `uses` counts answers made of it while fresh; hits of the table are added with a delay.
    - `next_refresh_s` is the earliest time of a refresh.
    - `last_s` is its last use by the directive, `uses_before` the value of `uses` at the start of the current series of
      uses (see PrefetchConfig).
    - `was_used`: by the directive since the last eviction round; `uses_seen` is the value of `uses` then.

    There may be many, so the garbage collector skips them (gc=False), as it does Answers.
    """

    key: bytes
    kind: AnswerKind
    response: Response
    stored_s: float
    ttl_s: float
    end_s: float
    size_bytes: int
    uses: Tally
    last_s: float
    uses_before: int = 0
    uses_seen: int = 0
    reused_until_s: float = 0.0
    next_refresh_s: float = 0.0
    was_used: bool = False

    @classmethod
    def of(cls, key: bytes, kind: AnswerKind, response: Response, stored_s: float, ttl_s: float) -> Item:
        body = response.body
        size_bytes = _ITEM_BYTES + len(key)
        size_bytes += len(body.wire) if isinstance(body, Message) and not response.options else _size_of(response)
        return cls(key, kind, response, stored_s, ttl_s, stored_s + ttl_s, size_bytes, Tally(), stored_s)

    def reuse(self, until_s: float, repeat: Repeat | None = None) -> Reuse:
        self.reused_until_s = max(self.reused_until_s, until_s)
        return Reuse((self.key,), until_s, repeat)


def _size_of(response: Response) -> int:
    size_bytes = len(response.wire) + sum(_OPTION_BYTES + len(data) for _, data in response.options)
    sections = (response.answer, response.authority, response.additional)
    for rrset in (rrset for rrsets in sections for rrset in rrsets):
        texts = sum(len(rdata) for rdata in rrset.rdata if isinstance(rdata, bytes | str))
        size_bytes += _RECORD_BYTES * (1 + len(rrset.rdata)) + texts
    return size_bytes


class Store:
    """Items of one kind, at most `capacity` of them."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size_bytes = 0
        self._items: OrderedDict[bytes, Item] = OrderedDict()  # a dict scans past removed entries for its first key
        self.get = self._items.get

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item, was_used: Callable[[Item], bool]) -> int:
        """Returns the number of evictions; `was_used`: since the item's last round."""
        old = self._items.pop(item.key, None)
        self._items[item.key] = item
        self.size_bytes += item.size_bytes - (old.size_bytes if old else 0)
        evictions = 0
        while len(self._items) > self.capacity or self.size_bytes > MAX_BYTES:
            self._evict(was_used)
            evictions += 1
        return evictions

    def remove(self, key: bytes) -> None:
        item = self._items.pop(key, None)
        if item is not None:
            self.size_bytes -= item.size_bytes

    def _evict(self, was_used: Callable[[Item], bool]) -> None:
        """Evicts the oldest item; one that was used since its last round gets another round."""
        for step in range(EVICTION_STEPS + 1):
            key = next(iter(self._items))
            item = self._items[key]
            if step == EVICTION_STEPS or not was_used(item):
                break
            self._items.move_to_end(key)
        self.remove(key)
