"""The controller that gives every namespace a ServiceAccount `default` (Kubernetes: service-account-controller)."""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.kinds import NAMESPACE, SERVICE_ACCOUNT, Json, Kind

DEFAULT = "default"


class ServiceAccounts:
    """Subjects are namespaces by name."""

    name = "service-account-controller"
    follows = (NAMESPACE, SERVICE_ACCOUNT)
    settled: frozenset[Kind] = frozenset({SERVICE_ACCOUNT})

    def __init__(self) -> None:
        self._active: set[str] = set()
        self._served: set[str] = set()

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Note which namespaces are in use, and which have their account."""
        _ = revision
        namespace = key[1] if kind == NAMESPACE else key[0]
        if kind == NAMESPACE:
            in_use = obj is not None and not obj["metadata"].get("deletionTimestamp")
            (self._active.add if in_use else self._active.discard)(namespace)
        elif key[1] == DEFAULT:
            (self._served.add if obj else self._served.discard)(namespace)
        return ((namespace,),)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """Make the account where it is missing."""
        _ = since_s, now_s
        (namespace,) = subject
        if namespace not in self._active or namespace in self._served:
            return Outcome()
        return Outcome((Action("create", SERVICE_ACCOUNT, {"metadata": {"name": DEFAULT, "namespace": namespace}}),))

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """Nobody is told."""
        _ = subject, error
        return None
