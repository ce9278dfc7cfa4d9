"""The service account controller: ServiceAccount default in every namespace."""

from __future__ import annotations

from collections.abc import Iterable

from kdns.controlplane.apimachinery.kinds import NAMESPACE, SERVICE_ACCOUNT
from kdns.controlplane.controllers.reconciler import Action, Change, Name, Reconciler, Request, Result
from kdns.controlplane.storage.object_meta import is_terminating

DEFAULT = "default"


class ServiceAccounts(Reconciler):
    """Requests are namespaces by name."""

    name = "service-account-controller"
    watches = (NAMESPACE, SERVICE_ACCOUNT)
    ignores_own_writes_of = frozenset({SERVICE_ACCOUNT})

    def __init__(self) -> None:
        self._active: set[str] = set()
        self._complete: set[str] = set()

    def observe(self, change: Change) -> Iterable[Name]:
        kind, key, obj, _ = change
        namespace = key[1] if kind == NAMESPACE else key[0]
        if kind == NAMESPACE:
            is_active = obj is not None and not is_terminating(obj)
            (self._active.add if is_active else self._active.discard)(namespace)
        elif key[1] == DEFAULT:
            (self._complete.add if obj else self._complete.discard)(namespace)
        return ((namespace,),)

    def reconcile(self, request: Request) -> Result:
        (namespace,) = request.name
        if namespace not in self._active or namespace in self._complete:
            return Result()
        return Result((Action("create", SERVICE_ACCOUNT, {"metadata": {"name": DEFAULT, "namespace": namespace}}),))
