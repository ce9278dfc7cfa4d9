"""What a page shows of a watched cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from kdns.cluster.io.informer import FollowStats
from kdns.cluster.source import Source
from kdns.cluster.state import State
from kdns.cluster.watch import RESOURCES
from kdns.status.page import Table, age

STALE_S: Final = 120.0
"""A watch of which nothing was heard for so long is a problem: bookmarks come each minute."""


class Watched(NamedTuple):
    """An API that is followed."""

    source: Source
    state: State
    stats: FollowStats

    @property
    def name(self) -> str:
        return self.source.kubeconfig or self.source.endpoint or "of the own cluster"


def watch_table(clusters: Iterable[Watched]) -> Table:
    rows = [
        (
            RESOURCES[kind].plural,
            f"{len(cluster.state.objects(kind)):,}",
            "yes" if stats.connected else "no",
            age(time.monotonic() - stats.last_contact_s) if stats.last_contact_s is not None else "never",
            f"{stats.lists:,}",
            f"{stats.events:,}",
            cluster.name,
        )
        for cluster in clusters
        for kind, stats in cluster.stats.kinds.items()
    ]
    heads = ("Kind", "Known", "Watched", "Last heard of", "Lists", "Changes", "API")
    return Table("Objects of the cluster", heads, rows, "No cluster is watched.")


def watch_problems(clusters: Iterable[Watched]) -> Iterator[str]:
    """APIs that do not answer, or have said nothing for a while."""
    for cluster in clusters:
        if cluster.state.stale:
            at = utc(cluster.state.as_of_s)
            yield f"The API {cluster.name} does not answer. Names are those of the snapshot of {at}."
        for kind, stats in cluster.stats.kinds.items():
            silent_s = time.monotonic() - stats.last_contact_s if stats.last_contact_s is not None else 0.0
            if silent_s > STALE_S and not RESOURCES[kind].is_optional:
                yield f"The API {cluster.name} has said nothing about {RESOURCES[kind].plural} for {age(silent_s)}."


def utc(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
