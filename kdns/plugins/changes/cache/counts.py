"""The counters of `cache`, by server and view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kdns.plugins.changes.cache.kinds import AnswerKind
from kdns.plugins.changes.cache.store import Store
from kdns.serverblocks.directive import Sample, World
from kdns.tally import Tally

_LABELS: Final = ("server", "zones", "view")
_TYPED: Final = ("server", "type", "zones", "view")
_TYPES: Final = {AnswerKind.SUCCESS: "success", AnswerKind.DENIAL: "denial", AnswerKind.FAILURE: "denial"}

FAMILIES: Final = (
    ("requests", "Queries for names that the cache covers.", _LABELS),
    ("misses", "Queries without a reply in the cache.", _LABELS),
    ("served_stale", "Answers whose TTL had passed.", _LABELS),
    ("prefetch", "Replies that were refreshed before their TTL had passed.", _LABELS),
    ("drops", "Replies that were not about the question.", _LABELS),
    ("hits", "Queries answered from the cache.", _TYPED),
    ("evictions", "Replies that were evicted because the cache was full.", _TYPED),
)


class Counts(NamedTuple):
    """The counters of one server and view, in the order of FAMILIES."""

    requests: Tally
    misses: Tally
    stale: Tally
    prefetches: Tally
    drops: Tally
    hits: Mapping[AnswerKind, Tally]
    evictions: Mapping[AnswerKind, Tally]


class CountsByServer(dict[tuple[str, str], Counts]):
    """Counts by server and view, made on first use; `zones` is the label of the cache's zones."""

    def __init__(self, world: World, zones: str) -> None:
        super().__init__()
        self._zones = zones
        self._families = [world.counters(f"coredns_cache_{name}", text, labels) for name, text, labels in FAMILIES]

    def __missing__(self, key: tuple[str, str]) -> Counts:
        server, view = key
        *plain, hits, evictions = self._families
        requests, misses, stale, prefetches, drops = (family.tally(server, self._zones, view) for family in plain)
        hits_by_kind, evictions_by_kind = (
            {kind: family.tally(server, name, self._zones, view) for kind, name in _TYPES.items()}
            for family in (hits, evictions)
        )
        counts = Counts(requests, misses, stale, prefetches, drops, hits_by_kind, evictions_by_kind)
        self[key] = counts
        return counts

    def expose_entries(self, world: World, success: Store, denial: Store) -> None:
        def entries() -> Iterable[Sample]:
            for server, view in self:
                for name, store in (("success", success), ("denial", denial)):
                    yield (server, name, self._zones, view), len(store)

        world.expose("coredns_cache_entries", "Replies in the cache.", _TYPED, entries)
