"""What a control plane would make of manifests, worked out in memory: nothing listens and nothing is kept.

Chance is the same each time, so that the same manifests get the same addresses.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kdns.aio.controllers import Controllers
from kdns.aio.localcluster import SUFFIX_LETTERS
from kdns.aio.manifestfiles import load
from kdns.aio.manifests import ManifestFollower, ObjectList
from kdns.controlplane.api import Api
from kdns.controlplane.bootstrap import establish, initial_objects
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.controllers import controllers_of
from kdns.controlplane.endpointslices import MANAGED_BY
from kdns.controlplane.kinds import ENDPOINT_SLICE, ENDPOINTS, NAMESPACE, Json, Kind
from kdns.controlplane.manifests import SOURCE, Manifest
from kdns.controlplane.store import Store
from kdns.controlplane.strategy import Strategies
from kdns.errors import InputError, ManifestError

_SETTLED_S: Final = 0.05
"""Nothing to do for so long: everything is done. First retries come sooner."""
_BY_HAND: Final = "kdns-manifests"
_OWN: Final = frozenset({("default", "kubernetes"), ("kube-system", "kube-dns")})
"""The Services of the servers themselves."""


async def rehearsed(paths: Sequence[Path], config: ClusterConfig, warn: Callable[[str], None]) -> Api:
    """A cluster with everything that the manifests lead to, at rest.

    EndpointSlices in the manifests stay as they are: no controller adds to them or takes from them. Namespaces need no
    manifest. `warn` hears of manifests that do not count. ManifestError for a file that cannot be read, InputError for
    objects that are refused.
    """
    manifests, _ = load(paths)  # a broken file is an error here, while a follower waits for better times
    chance, names = random.Random(0), random.Random(0)  # apart, so that addresses do not hang on what else there is
    strategies = Strategies(config, chance.randrange)
    api = Api(
        Store(revision=1),
        strategies,
        time.time,
        lambda: str(uuid.UUID(int=names.getrandbits(128))),
        lambda: "".join(names.choices(SUFFIX_LETTERS, k=5)),
    )
    establish(api, strategies, initial_objects(config, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
    for name in sorted({each.namespace for each in manifests} - {"", *_names(api, manifests)}):
        api.create(NAMESPACE, "", {"metadata": {"name": name}})
    controllers = Controllers(api, lambda: controllers_of(config, chance.randrange, strategies.services))
    controllers.start()
    try:
        problems: list[ManifestError] = []
        applied = await ManifestFollower(_AsGiven(api, strategies), paths, report=problems.append).start()
        if applied.refused:
            raise InputError("\n".join(map(str, problems)))
        for problem in problems:
            warn(str(problem))
        await _rest(controllers)
    finally:
        controllers.close()
    return api


def is_by_hand(obj: Json) -> bool:
    """Whether a manifest defined this object."""
    return SOURCE in (obj["metadata"].get("annotations") or {})


def _names(api: Api, manifests: Iterable[Manifest]) -> Iterator[str]:
    """The namespaces that are there or have a manifest."""
    yield from (obj["metadata"]["name"] for obj in api.list(NAMESPACE, None).items)
    yield from (each.name for each in manifests if each.kind == NAMESPACE)


async def _rest(controllers: Controllers) -> None:
    while True:
        await controllers.idle.wait()
        await asyncio.sleep(_SETTLED_S)
        if controllers.idle.is_set():
            return


class _AsGiven:
    """The API, but that it takes what was exported from a cluster.

    No controller manages slices from manifests, whatever they say of their own cluster. The Services of the servers
    themselves may lead to loopback addresses.
    """

    def __init__(self, api: Api, strategies: Strategies) -> None:
        self._api, self._strategies = api, strategies

    def get(self, kind: Kind, namespace: str, name: str) -> Json:
        return self._api.get(kind, namespace, name)

    def list(self, kind: Kind, namespace: str | None) -> ObjectList:
        return self._api.list(kind, namespace)

    def create(self, kind: Kind, namespace: str, obj: Json, *, field_manager: str = "") -> Json:
        with self._checked(kind, namespace, obj):
            return self._api.create(kind, namespace, _unmanaged(kind, obj), field_manager=field_manager)

    def update(
        self, kind: Kind, namespace: str, name: str, obj: Json, *, subresource: str = "", field_manager: str = ""
    ) -> Json:
        changed, manager = _unmanaged(kind, obj), field_manager
        with self._checked(kind, namespace, obj):
            return self._api.update(kind, namespace, name, changed, subresource=subresource, field_manager=manager)

    def _checked(self, kind: Kind, namespace: str, obj: Json) -> AbstractContextManager[None]:
        is_own = kind in {ENDPOINTS, ENDPOINT_SLICE} and (namespace, obj["metadata"]["name"]) in _OWN
        return self._strategies.trusting() if is_own else nullcontext()

    def delete(self, kind: Kind, namespace: str, name: str, *, options: Json | None = None) -> Json:
        return self._api.delete(kind, namespace, name, options=options)


def _unmanaged(kind: Kind, obj: Json) -> Json:
    """Without owners, which are not there: what has none of its owners left would be deleted as in any cluster."""
    metadata: Mapping[str, object] = {k: v for k, v in obj["metadata"].items() if k != "ownerReferences"}
    if kind != ENDPOINT_SLICE:
        return {**obj, "metadata": metadata}
    labels = metadata.get("labels")
    labels = {**labels, MANAGED_BY: _BY_HAND} if isinstance(labels, dict) else {MANAGED_BY: _BY_HAND}
    return {**obj, "metadata": {**metadata, "labels": labels}}
