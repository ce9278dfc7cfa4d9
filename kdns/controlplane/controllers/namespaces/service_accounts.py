"""The service account controller: ServiceAccount default in every namespace."""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.controllers.controller import Action, Event, Request, Result
from kdns.controlplane.meta.kinds import NAMESPACE, SERVICE_ACCOUNT, Json, Kind
from kdns.controlplane.storage.object_meta import is_terminating

DEFAULT = "default"


class ServiceAccounts:
    """Requests are namespaces by name."""

    name = "service-account-controller"
    watches = (NAMESPACE, SERVICE_ACCOUNT)
    ignores_own_writes_of: frozenset[Kind] = frozenset({SERVICE_ACCOUNT})

    def __init__(self) -> None:
        self._active: set[str] = set()
        self._complete: set[str] = set()

    def observe(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Request]:
        """Indexes the active namespaces and those that have the account."""
        _ = revision
        namespace = key[1] if kind == NAMESPACE else key[0]
        if kind == NAMESPACE:
            is_active = obj is not None and not is_terminating(obj)
            (self._active.add if is_active else self._active.discard)(namespace)
        elif key[1] == DEFAULT:
            (self._complete.add if obj else self._complete.discard)(namespace)
        return ((namespace,),)

    def reconcile(self, request: Request, since_s: float, now_s: float) -> Result:
        """Creates the account if it is missing."""
        _ = since_s, now_s
        (namespace,) = request
        if namespace not in self._active or namespace in self._complete:
            return Result()
        return Result((Action("create", SERVICE_ACCOUNT, {"metadata": {"name": DEFAULT, "namespace": namespace}}),))

    def failed(self, request: Request, error: Exception) -> Event | None:
        """Returns no Event."""
        _ = request, error
        return None
