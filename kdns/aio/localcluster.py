"""A cluster without a cluster, running: store, API, controllers, and the manifests that it follows."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from kdns import logs
from kdns.aio import rest
from kdns.aio.admin import scraped
from kdns.aio.allocmetrics import AllocationMetrics
from kdns.aio.apikeeper import ApiKeeper
from kdns.aio.controllers import Controllers
from kdns.aio.loading import loading
from kdns.aio.manifests import Applied, ManifestFollower
from kdns.aio.rest_guard import RestConfig, check_config
from kdns.aio.sqlite import Journal, open_journal
from kdns.controlplane.api import Api
from kdns.controlplane.bootstrap import Listening, api_objects, establish, initial_objects
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.controllers import controllers_of
from kdns.controlplane.deletion import pod_grace_s
from kdns.controlplane.store import Store
from kdns.controlplane.strategy import Strategies
from kdns.errors import KdnsError, ManifestError

log = logs.get(__name__)

SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of generated names: none that make words (Kubernetes util/rand)."""


@dataclass(slots=True)
class LocalCluster:
    """One control plane; `start`, then `stop`. `data` None keeps everything in memory."""

    config: ClusterConfig
    rest_config: RestConfig
    data: Path | None = None
    address: tuple[str, int] = ("", 0)
    _journal: Journal | None = None
    _api: Api = field(init=False)
    _strategies: Strategies = field(init=False)
    _controllers: Controllers = field(init=False)
    _keeper: ApiKeeper = field(init=False)
    _rest: rest.RestServer = field(init=False)
    _following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the store, serve the API, run the controllers.

        InputError for an unusable data directory or an unsafe address, ListenError for a taken one.
        """
        check_config(self.rest_config)
        allocation = AllocationMetrics()
        self._strategies = Strategies(self.config, random.randrange, allocation.tally)
        with loading():
            self._api = self._opened()
        for lost in self._strategies.lost:
            log.warning("allocation lost", what=lost)
        durable = {"durable": self._journal.durable} if self._journal else {}
        metrics = partial(scraped, allocation.registry(self._strategies.services))
        try:
            self._rest = await rest.start(self._api, self.rest_config, metrics=metrics, **durable)
        except KdnsError:
            if self._journal:
                await self._journal.close()
            raise
        self.address = self._rest.address
        self._establish(api=Listening(*self.address))
        self._controllers = Controllers(
            self._api, lambda: controllers_of(self.config, random.randrange, self._strategies.services)
        )
        self._controllers.start()
        self._keeper = ApiKeeper(self._api, self._serve)

    def dns_at(self, host: str, port: int) -> None:
        """Tell the cluster where its DNS listens: Service kube-dns leads there."""
        self._establish(dns=Listening(host, port))

    async def apply(self, paths: Sequence[Path], report: Callable[[ManifestError], None]) -> Applied:
        """Apply the manifests and follow them from now on; ManifestError for a path that leads nowhere."""
        follower = ManifestFollower(self._api, paths, report=report)
        applied = await follower.start()
        self._following = asyncio.create_task(follower.follow())
        await self._controllers.idle.wait()
        return applied

    async def stop(self) -> None:
        """Finish what is begun, and close."""
        if self._following:
            self._following.cancel()
        self._keeper.close()
        self._controllers.close()
        await self._rest.close()
        if self._journal:
            await self._journal.close()

    def _opened(self) -> Api:
        # From the clock: no follower from before a restart may find its old revision again, with other objects.
        store = Store(revision=int(time.time()))
        if self.data:
            self._journal = open_journal(self.data)
            store = Store(self._journal.objects, revision=self._journal.revision, persist=self._journal.append)
        grace = {"grace_s": pod_grace_s} if self.config.simulate_pods else {}
        return Api(store, self._strategies, time.time, lambda: str(uuid.uuid4()), _suffix, **grace)

    def _serve(self) -> None:
        establish(self._api, self._strategies, api_objects(self.config, Listening(*self.address)))

    def _establish(self, *, api: Listening | None = None, dns: Listening | None = None) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        establish(self._api, self._strategies, initial_objects(self.config, now, api=api, dns=dns))


def _suffix() -> str:
    return "".join(secrets.choice(SUFFIX_LETTERS) for _ in range(5))
