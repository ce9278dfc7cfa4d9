"""The watched clusters of a server: which are followed, since when, and until when."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Final

from kdns import logs
from kdns.cluster.io.cluster import Cluster
from kdns.cluster.io.informer import follow
from kdns.cluster.io.snapshots import SnapshotKeeper
from kdns.cluster.source import ClusterSpec, Source
from kdns.errors import InputError
from kdns.runtime.tasks import restarted

log = logs.get(__name__)

POLL_S: Final = 0.01


class Clusters:
    """All watched clusters; server blocks with the same specification share one.

    `default_source` replaces the Pod's service account.
    """

    def __init__(self, default_source: Source | None = None) -> None:
        self._default_source = default_source
        self._clusters: dict[ClusterSpec, Cluster] = {}
        self._tasks: dict[Cluster, asyncio.Task[None]] = {}
        self._is_started = False

    @property
    def followed(self) -> tuple[Cluster, ...]:
        return tuple(self._clusters.values())

    @property
    def is_synced(self) -> bool:
        return all(cluster.is_synced for cluster in self.followed)

    @property
    def startup_timeout_s(self) -> float:
        listeners = (listener for cluster in self.followed for listener in cluster.listeners)
        return max((listener.startup_timeout_s for listener in listeners), default=0.0)

    def of(self, spec: ClusterSpec) -> Cluster:
        """Call `follow` afterwards: the cluster may be new."""
        if self._default_source and not (spec.source.kubeconfig or spec.source.endpoint):
            spec = replace(spec, source=self._default_source)
        return self._clusters.setdefault(spec, Cluster(spec))

    def follow(self) -> None:
        for cluster in self.followed:
            if cluster not in self._tasks:
                work = partial(self._follow, cluster)
                self._tasks[cluster] = restarted(work, "follow the api server", ended_by=(InputError,))

    def drop_unused(self) -> None:
        for cluster in self.followed:
            if not cluster.listeners:
                del self._clusters[cluster.spec]
                if task := self._tasks.pop(cluster, None):
                    task.cancel()

    async def wait(self) -> None:
        """Until all clusters are listed, or up to `startup_timeout_s`. Raises InputError for an unusable source."""
        deadline_s = asyncio.get_running_loop().time() + self.startup_timeout_s
        while not self.is_synced and asyncio.get_running_loop().time() < deadline_s:
            for task in self._tasks.values():
                if task.done():
                    await task
            await asyncio.sleep(POLL_S)
        if not self.is_synced:
            log.warning("starting without the api server", answers="SERVFAIL until everything is listed")
        self._is_started = True

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _follow(self, cluster: Cluster) -> None:
        file = cluster.spec.snapshot
        keeping = restarted(SnapshotKeeper(cluster, file).run, "snapshot") if file else None
        try:
            spec, state = cluster.spec, cluster.state
            await follow(spec.source, state, cluster.changed, cluster.stats, scope=spec.scope)
        except InputError as error:
            failure = cluster.listeners[0].error_at(error) if cluster.listeners else error
            if self._is_started:  # until then, `wait` raises it
                log.error("api server cannot be watched", error=str(failure))  # noqa: TRY400 - the text says it all
            raise failure from error
        finally:
            if keeping:
                keeping.cancel()
