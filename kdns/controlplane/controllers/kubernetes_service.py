"""Keeps Service kubernetes in namespace default, by which Pods reach the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, SERVICE, Kind
from kdns.controlplane.controllers.reconciler import Change, Name, Reconciler, Request, Result

KEY = "default", "kubernetes"


class KubernetesService(Reconciler):
    """Calls `create` when the Service, its Endpoints or its EndpointSlice is missing.

    Differs: kube-apiserver checks every ten seconds; kdns recreates the objects at once.
    """

    name = "kubernetes-service"
    watches = (SERVICE, ENDPOINTS, ENDPOINT_SLICE)

    def __init__(self, create: Callable[[], None]) -> None:
        self._create = create
        self._missing: set[Kind] = set(self.watches)

    def observe(self, change: Change) -> Iterable[Name]:
        if change.key != KEY:
            return ()
        (self._missing.discard if change.obj else self._missing.add)(change.kind)
        return (KEY,)

    def reconcile(self, request: Request) -> Result:
        del request
        if self._missing:
            self._create()
        return Result()
