"""Informer: syncs State with all kinds of a scope of one API server, with a reflector for each kind.

async with asyncio.TaskGroup() as tasks:
    tasks.create_task(follow(Source(kubeconfig="~/.kube/config"), state, on_change, FollowStats()))
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kdns.cluster.io.connection import Connection, RestStats
from kdns.cluster.io.outage import Outage
from kdns.cluster.io.reflector import OnChange, Reflector, WatchStats
from kdns.cluster.objects import Object
from kdns.cluster.source import Scope, Source
from kdns.cluster.state import State
from kdns.cluster.watch import RESOURCES, Timing

DEFAULT_SCOPE, DEFAULT_TIMING = Scope(), Timing()


@dataclass(slots=True)
class FollowStats:
    """The counters of one API server, by kind, and of its requests."""

    kinds: dict[type[Object], WatchStats] = field(default_factory=dict)
    rest: RestStats = field(default_factory=RestStats)


async def follow(
    source: Source,
    state: State,
    on_change: OnChange,
    stats: FollowStats,
    *,
    scope: Scope = DEFAULT_SCOPE,
    timing: Timing = DEFAULT_TIMING,
    now_s: Callable[[], float] = time.monotonic,
    fraction: Callable[[], float] = random.random,
) -> None:
    """Syncs `state` with the API server of `source` until cancelled.

    Raises KubeconfigError for an invalid source. A server that is unreachable, refuses, or sends responses that do not
    decode is retried without end, is logged and counted in `stats`, and changes nothing in `state`.
    """
    outage = Outage(timing.report_s, now_s)
    async with Connection(source, stats.rest, timing, now_s=now_s) as connection, asyncio.TaskGroup() as tasks:
        for kind in scope.kinds:
            reflector = Reflector(
                RESOURCES[kind],
                connection,
                state,
                on_change,
                stats.kinds.setdefault(kind, WatchStats()),
                outage,
                timing,
                now_s,
                fraction,
                label_selector=scope.selector(kind),
                field_selector=scope.fields(kind),
            )
            tasks.create_task(reflector.run(), name=f"follow {RESOURCES[kind].plural}")
