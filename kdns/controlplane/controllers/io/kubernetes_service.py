"""Service kubernetes in namespace default, the way of Pods to the API server: created again when it is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, SERVICE
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.listing import ListOptions
from kdns.controlplane.storage.store import Subscription

KEY = "default", "kubernetes"
_KINDS = (SERVICE, ENDPOINTS, ENDPOINT_SLICE)


class KubernetesServiceKeeper:
    """Calls `create` whenever the Service, its Endpoints or its EndpointSlice is missing, until `close`.

    Differs: kube-apiserver checks every ten seconds; here the objects are created again at once.
    """

    def __init__(self, api: Registry, create: Callable[[], None]) -> None:
        self._api, self._create, self._scheduled = api, create, False
        self._subscriptions: list[Subscription] = []
        self._watch()

    def close(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    def _watch(self) -> None:
        self.close()
        namespace, name = KEY
        selector = f"metadata.name={name}"
        self._subscriptions = [
            self._api.watch(Request(kind, namespace), ListOptions(field_selector=selector)) for kind in _KINDS
        ]
        for subscription in self._subscriptions:
            subscription.wake = self._wake

    def _wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._check)

    def _check(self) -> None:
        self._scheduled = False
        for subscription in self._subscriptions:
            subscription.take()
        if any(subscription.closed for subscription in self._subscriptions):
            self._watch()
        if not all(self._api.store.get(kind, KEY) for kind in _KINDS):
            self._create()
