"""The cluster that manifests would give, computed in memory without listeners and without a database.

The random generators have fixed seeds, so the same manifests get the same addresses.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from kdns.controlplane.apimachinery.annotations import MANIFEST
from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, NAMESPACE, Json, Kind
from kdns.controlplane.bootstrap import assembled_api, establish_cluster
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.io.controller_manager import ControllerManager
from kdns.controlplane.controllers.table import controllers_of
from kdns.controlplane.endpoints.pod_endpoints import MANAGED_BY
from kdns.controlplane.fieldmanager.managed_fields import Entries
from kdns.controlplane.kinds.served import ServedKinds
from kdns.controlplane.manifests.io.files import load, texts_read_once
from kdns.controlplane.manifests.io.follower import ManifestFollower
from kdns.controlplane.manifests.manifest import Manifest
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.store import Store, StoredObject
from kdns.errors import InputError, ManifestError

_IDLE_S: Final = 0.05
"""The controllers are done when they are idle this long; their first retries come sooner."""
_MANAGER: Final = "kdns-manifests"
_OWN: Final = frozenset({("default", "kubernetes"), ("kube-system", "kube-dns")})
"""The Services whose endpoints are servers of kdns."""


async def in_memory_cluster(paths: Sequence[Path], config: ClusterConfig, warn: Callable[[str], None]) -> Registry:
    """Applies the manifests, and runs the controllers until they are idle.

    No controller changes EndpointSlices of the manifests. Namespaces need no manifest. `warn` gets the skipped
    manifests. Raises ManifestError for an unreadable file, InputError for refused objects.
    """
    texts = texts_read_once(paths)
    # a broken file is an error here; ManifestFollower would only report it
    manifests, unknown = load(paths, ServedKinds(), texts)
    chance, names = random.Random(0), random.Random(0)  # two, so that addresses do not depend on the number of names
    api = assembled_api(config, Store(revision=1), time.time, chance.randrange, names.randrange)
    for text in establish_cluster(api):
        warn(text)
    named = {manifest.namespace for manifest in manifests} | {_namespace(document.value) for document in unknown}
    for name in sorted(named - {"", *_namespaces(api, manifests)}):
        api.create(Request(NAMESPACE), {"metadata": {"name": name}})
    controllers = ControllerManager(api, lambda: controllers_of(config, chance.randrange))
    controllers.start()
    try:
        problems: list[ManifestError] = []
        applied = await ManifestFollower(_ExportedObjects(api), paths, texts, report=problems.append).start()
        if applied.refused:
            raise InputError("\n".join(map(str, problems)))
        for problem in problems:
            warn(str(problem))
        await _until_idle(controllers)
    finally:
        controllers.close()
    return api


def stored(api: Registry, kind: Kind) -> list[Json]:
    """The objects of a kind. If manifests have EndpointSlices of a Service, those of the controllers are left out."""
    objects = [*api.list(Request(kind)).items]
    if kind != ENDPOINT_SLICE:
        return objects
    with_manifest = {_service(obj) for obj in objects if has_manifest(obj)}
    return [obj for obj in objects if has_manifest(obj) or _service(obj) not in with_manifest]


def _service(endpoint_slice: Json) -> tuple[str, str]:
    metadata = endpoint_slice["metadata"]
    return metadata["namespace"], (metadata.get("labels") or {}).get("kubernetes.io/service-name", "")


def has_manifest(obj: Json) -> bool:
    return MANIFEST in (obj["metadata"].get("annotations") or {})


def _namespace(obj: Json) -> str:
    """The namespace that an object of an unknown kind names, or ""."""
    metadata = obj.get("metadata")
    return str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""


def _namespaces(api: Registry, manifests: Iterable[Manifest]) -> Iterator[str]:
    yield from (obj["metadata"]["name"] for obj in api.list(Request(NAMESPACE)).items)
    yield from (manifest.name for manifest in manifests if manifest.kind == NAMESPACE)


async def _until_idle(controllers: ControllerManager) -> None:
    while True:
        await controllers.idle.wait()
        await asyncio.sleep(_IDLE_S)
        if controllers.idle.is_set():
            return


class _ExportedObjects(Registry):
    """The registry, which also accepts objects that were exported from a cluster.

    EndpointSlices of manifests get another managed-by label, so no controller manages them. Endpoints of kdns's own
    servers may have loopback addresses.
    """

    def __init__(self, registry: Registry) -> None:
        self.__dict__ = registry.__dict__  # both write the same state

    def create(
        self, request: Request, obj: Json, entries: Entries | None = None, *, instead_of: StoredObject | None = None
    ) -> StoredObject:
        with self._validation(request, obj):
            return super().create(request, _unmanaged(request.kind, obj), entries, instead_of=instead_of)

    def update(self, request: Request, obj: Json) -> StoredObject:
        with self._validation(request, obj):
            return super().update(request, _unmanaged(request.kind, obj))

    def _validation(self, request: Request, obj: Json) -> AbstractContextManager[None]:
        name = request.namespace, obj["metadata"]["name"]
        is_own = request.kind in {ENDPOINTS, ENDPOINT_SLICE} and name in _OWN
        return self.without_validation() if is_own else nullcontext()


def _unmanaged(kind: Kind, obj: Json) -> Json:
    """Drops owner references: the owners are not in the manifests, so garbage collection would delete the object."""
    metadata: Mapping[str, object] = {k: v for k, v in obj["metadata"].items() if k != "ownerReferences"}
    if kind != ENDPOINT_SLICE:
        return {**obj, "metadata": metadata}
    labels = metadata.get("labels")
    labels = {**labels, MANAGED_BY: _MANAGER} if isinstance(labels, dict) else {MANAGED_BY: _MANAGER}
    return {**obj, "metadata": {**metadata, "labels": labels}}
