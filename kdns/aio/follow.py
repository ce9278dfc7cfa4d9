"""Keeps a State equal to a Kubernetes API: the one thing to call.

async with asyncio.TaskGroup() as tasks:
    tasks.create_task(follow(Source(kubeconfig="~/.kube/config"), state, on_change, FollowStats()))
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kdns.aio.connection import Connection, RestStats
from kdns.aio.outage import Outage
from kdns.aio.reflector import OnChange, Reflector, WatchStats
from kdns.aio.source import Source
from kdns.cluster.objects import EndpointSlice, Namespace, Node, Object, Service, ServiceCIDR
from kdns.cluster.state import State
from kdns.cluster.watching import RESOURCES, Timing


@dataclass(frozen=True, slots=True)
class Scope:
    """What of the cluster is followed. `labels` selects Services, EndpointSlices and Pods, as CoreDNS's option does.

    `node` is the one Node that is followed.
    """

    kinds: tuple[type[Object], ...] = (Namespace, Service, EndpointSlice)
    labels: str = ""
    namespace_labels: str = ""
    node: str = ""

    def fields(self, kind: type[Object]) -> str:
        """The field selector the server is asked to apply to `kind`."""
        return f"metadata.name={self.node}" if kind is Node else ""

    def selector(self, kind: type[Object]) -> str:
        """The label selector the server is asked to apply to `kind`."""
        if kind in {Node, ServiceCIDR}:
            return ""
        return self.namespace_labels if kind is Namespace else self.labels


@dataclass(frozen=True, slots=True)
class NodeScope(Scope):
    """What a node's dataplane follows, with kube-proxy's selectors.

    Services with virtual IPs that no other proxy looks after, endpoints but those of headless Services, the ranges of
    cluster IPs, and the Node.
    """

    kinds: tuple[type[Object], ...] = (Service, EndpointSlice, ServiceCIDR, Node)

    def fields(self, kind: type[Object]) -> str:
        """The field selector the server is asked to apply to `kind`."""
        return "spec.clusterIP!=None" if kind is Service else Scope.fields(self, kind)

    def selector(self, kind: type[Object]) -> str:
        """The label selector the server is asked to apply to `kind`."""
        if kind is Service:
            return "!service.kubernetes.io/service-proxy-name"
        return "!service.kubernetes.io/headless" if kind is EndpointSlice else ""


DEFAULT_SCOPE, DEFAULT_TIMING = Scope(), Timing()


@dataclass(slots=True)
class FollowStats:
    """All counters of one followed API: by kind, and of the requests."""

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
    """Never returns: `state` follows the API at `source` until the task is cancelled.

    Raises KubeconfigError at once for a source that cannot be used. A server that is away, refuses or answers nonsense
    is asked again for ever, shows in `stats` and in the log, and changes nothing in `state`.
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
