"""The service account controller: ServiceAccount default in every namespace."""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.controllers.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.meta.kinds import NAMESPACE, SERVICE_ACCOUNT, Json, Kind
from kdns.controlplane.storage.object_meta import is_terminating

DEFAULT = "default"


class ServiceAccounts:
    """Subjects are namespaces by name."""

    name = "service-account-controller"
    follows = (NAMESPACE, SERVICE_ACCOUNT)
    settled: frozenset[Kind] = frozenset({SERVICE_ACCOUNT})

    def __init__(self) -> None:
        self._active: set[str] = set()
        self._complete: set[str] = set()

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Index the active namespaces and those that have the account."""
        _ = revision
        namespace = key[1] if kind == NAMESPACE else key[0]
        if kind == NAMESPACE:
            is_active = obj is not None and not is_terminating(obj)
            (self._active.add if is_active else self._active.discard)(namespace)
        elif key[1] == DEFAULT:
            (self._complete.add if obj else self._complete.discard)(namespace)
        return ((namespace,),)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """Create the account where it is missing."""
        _ = since_s, now_s
        (namespace,) = subject
        if namespace not in self._active or namespace in self._complete:
            return Outcome()
        return Outcome((Action("create", SERVICE_ACCOUNT, {"metadata": {"name": DEFAULT, "namespace": namespace}}),))

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """No Event."""
        _ = subject, error
        return None
