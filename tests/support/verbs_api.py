"""A Registry over the real registry, for tests of its verbs; its clock stands."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import NAMESPACE, Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.store import Store

NOW_S = 1_700_000_000.0
NOW = "2023-11-14T22:13:20Z"
HEADLESS: Json = {"clusterIP": "None", "ports": [{"port": 80}]}


def new_registry(
    store: Store | None = None,
    config: ClusterConfig | None = None,
    new_uid: Callable[[], str] | None = None,
    now_s: Callable[[], float] = lambda: NOW_S,
    **options: Any,
) -> Registry:
    uids, suffixes = count(1), count(1)
    registry = Registry(
        Store() if store is None else store,
        config or ClusterConfig(),
        lambda _: 0,
        now_s,
        new_uid or (lambda: f"uid-{next(uids)}"),
        lambda: f"s{next(suffixes):04}",
        **options,
    )
    if registry.store.get(NAMESPACE, ("", "default")) is None:
        registry.create(Request(NAMESPACE), {"metadata": {"name": "default"}})
    return registry


def new_api(store: Store | None = None, *, grace: bool = False, kinds: Catalogue | None = None) -> Registry:
    return new_registry(store, grace=grace, kinds=kinds)


def without_revision(obj: Json) -> Json:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return {**obj, "metadata": metadata}


def service(name: str = "web", **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}}


def pod(name: str = "p", **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def refused(code: int, text: str, call: Callable[[], object]) -> StatusError:
    with pytest.raises(StatusError) as caught:
        call()
    assert (caught.value.code, text in caught.value.message) == (code, True), caught.value.message
    return caught.value
