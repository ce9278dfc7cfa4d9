"""A control plane on this machine: the store, the API server, the controllers and the manifests."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kdns import logs
from kdns.controlplane.bootstrap import (
    Listening,
    api_objects,
    assembled_api,
    establish,
    establish_cluster,
    missing_dns_service,
)
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.io.controller_manager import ControllerManager
from kdns.controlplane.controllers.kubernetes_service import KubernetesService
from kdns.controlplane.controllers.table import controllers_of
from kdns.controlplane.kinds.served import ServedKinds
from kdns.controlplane.manifests.changes import ChangeLog
from kdns.controlplane.manifests.io.follower import Applied, ManifestFollower
from kdns.controlplane.server.io import server
from kdns.controlplane.server.io.authentication import RestConfig, check_config
from kdns.controlplane.server.io.metrics import allocation_metrics
from kdns.controlplane.server.registry import Registry
from kdns.controlplane.storage.io.journal import clock_revision, open_journal
from kdns.controlplane.storage.store import Store
from kdns.errors import ManifestError
from kdns.runtime.http.sites import scraped
from kdns.runtime.process import gc_paused
from kdns.runtime.tasks import restarted

log = logs.get(__name__)


@dataclass(slots=True)
class LocalCluster:
    """One control plane: `start`, then `stop`. Without `data`, a folder, all objects are in memory.

    `api` has the initial objects after `start`; `warn` gets the problems with them.
    """

    config: ClusterConfig
    rest_config: RestConfig
    data: Path | None = None
    warn: Callable[[str], None] = lambda problem: log.warning("first objects", problem=problem)
    address: tuple[str, int] = ("", 0)
    _running: AsyncExitStack = field(init=False)
    api: Registry = field(init=False)
    _controllers: ControllerManager = field(init=False)

    async def start(self) -> None:
        """Opens the store, serves the API, runs the controllers. If a step fails, the earlier steps are undone.

        Raises InputError for an unusable data folder and for an address that needs authentication, ListenError for an
        address in use.
        """
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._running = stack.pop_all()

    async def _start(self, stack: AsyncExitStack) -> None:
        check_config(self.rest_config)
        kinds = ServedKinds()
        with gc_paused():
            journal = open_journal(self.data, kinds) if self.data else None
            if journal:
                stack.push_async_callback(journal.close)
            self.api = assembled_api(
                self.config,
                journal.store() if journal else Store(revision=clock_revision()),
                time.time,
                random.randrange,
                random.SystemRandom().randrange,
                grace=self.config.simulate_pods,
                kinds=kinds,
            )
        for lost in self.api.lost:
            log.warning("allocation lost", allocation=lost)
        durable = {"durable": journal.durable} if journal else {}
        metrics = partial(scraped, allocation_metrics(self.api.services))
        rest_server = await server.start(self.api, self.rest_config, metrics=metrics, **durable)
        stack.push_async_callback(rest_server.close)
        self.address = rest_server.address
        self._warn_of(establish_cluster(self.api, api=Listening(*self.address)))
        self._warn_of(establish(self.api, missing_dns_service(self.api, self.config)))
        self._controllers = ControllerManager(
            self.api,
            lambda: (
                *controllers_of(self.config, random.randrange),
                KubernetesService(self._serve),
            ),
        )
        stack.callback(self._controllers.close)
        self._controllers.start()

    def dns_at(self, host: str, port: int) -> None:
        """Creates Service kube-dns, whose endpoint is the DNS server at this address."""
        self._warn_of(establish_cluster(self.api, dns=Listening(host, port)))

    async def apply(
        self,
        paths: Sequence[Path],
        texts: Mapping[Path, str],
        report: Callable[[ManifestError], None],
        changes: ChangeLog | None = None,
        trusted: Collection[Path] = (),
        doubt: Callable[[ManifestError], None] = lambda _error: None,
    ) -> Applied:
        """Applies the manifests and follows their changes. Raises ManifestError for a path that does not exist.

        `doubt` gets what is accepted but will not work.
        """
        follower = ManifestFollower(self.api, paths, texts, report=report, changes=changes, trusted=trusted)
        applied = await follower.start()
        for error in follower.doubts():
            doubt(error)
        self._running.callback(restarted(follower.follow, "manifests").cancel)
        await self.finished(changes.progress if changes else lambda _text: None)
        return applied

    async def finished(self, progress: Callable[[str], None] = lambda _text: None) -> None:
        await self._controllers.finished(
            lambda done, queued: progress(f"controllers at work, {done:,} objects done, {queued:,} left")
        )

    async def stop(self) -> None:
        await self._running.aclose()

    def _serve(self) -> None:
        self._warn_of(establish(self.api, api_objects(self.config, Listening(*self.address))))

    def _warn_of(self, problems: Iterable[str]) -> None:
        for problem in problems:
            self.warn(problem)
