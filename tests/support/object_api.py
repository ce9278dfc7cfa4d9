"""A Registry with verbs on plain objects, whose clock stands, and objects for it."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import NAMESPACE, Json, Kind
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.server.patch import MERGE_PATCH
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.listing import ListOptions, ListResult
from kdns.controlplane.storage.store import Store, Subscription

NOW_S = 1_700_000_000.0
NOW = "2023-11-14T22:13:20Z"
HEADLESS: Json = {"clusterIP": "None", "ports": [{"port": 80}]}


class Api:
    """Verbs of `registry` in namespace `default`; further options are those of a Request, or of a list.

    Uids are uid-1, uid-2, …; suffixes of generated names s0001, s0002, …
    """

    def __init__(
        self,
        store: Store | None = None,
        config: ClusterConfig | None = None,
        now_s: Callable[[], float] = lambda: NOW_S,
        choose: Callable[[int], int] = lambda _: 0,
        new_uid: Callable[[], str] | None = None,
        **options: Any,
    ) -> None:
        uids, suffixes = count(1), count(1)
        self.registry = Registry(
            store or Store(),
            config or ClusterConfig(),
            choose,
            now_s,
            new_uid or (lambda: f"uid-{next(uids)}"),
            lambda: f"s{next(suffixes):04}",
            **options,
        )
        self.store, self.kinds, self.services = self.registry.store, self.registry.kinds, self.registry.services
        if self.store.get(NAMESPACE, ("", "default")) is None:
            self.create(NAMESPACE, named("default"))

    def create(self, kind: Kind, obj: Json, **options: Any) -> Json:
        return self.registry.create(_request(kind, **options), obj).copy()

    def get(self, kind: Kind, name: str, **options: Any) -> Json:
        return self.registry.get(_request(kind, name, **options))

    def update(self, kind: Kind, name: str, obj: Json, **options: Any) -> Json:
        return self.registry.update(_request(kind, name, **options), obj).copy()

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        patch_type: str = MERGE_PATCH,
        validate: Callable[[Json], Json] = lambda obj: obj,
        **options: Any,
    ) -> Json:
        return self.registry.patch(_request(kind, name, **options), patch_type, patch, validate).copy()

    def apply(
        self, kind: Kind, name: str, config: Json, validate: Callable[[Json], Json] = lambda obj: obj, **options: Any
    ) -> Json:
        return self.registry.apply(_request(kind, name, **options), config, validate).copy()

    def delete(self, kind: Kind, name: str, delete_options: Json | None = None, **options: Any) -> Json:
        return self.registry.delete(_request(kind, name, **options), delete_options).copy()

    def listed(self, kind: Kind, namespace: str | None = None, **options: Any) -> ListResult:
        return self.registry.list(Request(kind, namespace), ListOptions(**options))

    def items(self, kind: Kind, namespace: str | None = None, **options: Any) -> list[Json]:
        return self.listed(kind, namespace, **options).items

    def names(self, kind: Kind, namespace: str | None = None, **options: Any) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.items(kind, namespace, **options)]

    def watch(self, kind: Kind, namespace: str | None = None, **options: Any) -> Subscription:
        return self.registry.watch(Request(kind, namespace), ListOptions(**options))


def _request(kind: Kind, name: str = "", namespace: str = "default", **options: Any) -> Request:
    return Request(kind, namespace if kind.namespaced else "", name, **options)


def named(name: str = "", **metadata: Any) -> Json:
    """An object that is only metadata."""
    return {"metadata": {"name": name, **metadata}}


def owned_by(*owners: Json, blocking: bool = False) -> Json:
    """The metadata of an object with these owners; with `blocking`, their deletions in the foreground wait for it."""
    rows = [
        {"apiVersion": owner.get("apiVersion", "v1"), "kind": owner["kind"], **_identity(owner)} for owner in owners
    ]
    return {"ownerReferences": [{**row, "blockOwnerDeletion": True} if blocking else row for row in rows]}


def _identity(obj: Json) -> Json:
    return {"name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}


def service(name: str = "web", **metadata: Any) -> Json:
    return {**named(name, **metadata), "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}}


def pod(name: str = "p", **metadata: Any) -> Json:
    return {**named(name, **metadata), "spec": {"containers": [{"name": "c", "image": "i"}]}}


def without_revision(obj: Json) -> Json:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return {**obj, "metadata": metadata}


def refused(code: int, text: str, call: Callable[..., object], *arguments: Any, **options: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        call(*arguments, **options)
    assert (caught.value.code, text in caught.value.message) == (code, True), caught.value.message
    return caught.value
