"""The root CA publisher: ConfigMap kube-root-ca.crt in every namespace.

(kube-controller-manager: root-ca-certificate-publisher, which runs with --root-ca-file.)
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, NAMESPACE, Json
from kdns.controlplane.controllers.reconciler import Action, Change, Name, Reconciler, Request, Result
from kdns.controlplane.storage.object_meta import is_terminating

NAME = "kube-root-ca.crt"
_ABOUT = {"kubernetes.io/description": "The certificates by which clients in the cluster verify the API server."}


class RootCa(Reconciler):
    """Requests are namespaces by name. `certificates` are PEM."""

    name = "root-ca-certificate-publisher"
    watches = (NAMESPACE, CONFIG_MAP)
    ignores_own_writes_of = frozenset({CONFIG_MAP})

    def __init__(self, certificates: str) -> None:
        self._data = {"ca.crt": certificates}
        self._active: set[str] = set()
        self._published: dict[str, Json] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        kind, key, obj, _ = change
        if kind is NAMESPACE:
            is_active = obj is not None and not is_terminating(obj)
            (self._active.add if is_active else self._active.discard)(key[1])
            return ((key[1],),)
        if key[1] != NAME:
            return ()
        self._published.pop(key[0], None)
        if obj:
            self._published[key[0]] = obj
        return ((key[0],),)

    def reconcile(self, request: Request) -> Result:
        (namespace,) = request.name
        if namespace not in self._active:
            return Result()
        if (published := self._published.get(namespace)) is None:
            meta = {"name": NAME, "namespace": namespace, "annotations": _ABOUT}
            return Result((Action("create", CONFIG_MAP, {"metadata": meta, "data": self._data}),))
        if published.get("data") == self._data:
            return Result()
        return Result((Action("update", CONFIG_MAP, {**published, "data": self._data}),))
