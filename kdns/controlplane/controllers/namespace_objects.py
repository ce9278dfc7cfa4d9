"""Objects in every namespace: ServiceAccount default, and ConfigMap kube-root-ca.crt.

(kube-controller-manager: service-account-controller; root-ca-certificate-publisher, which runs with --root-ca-file.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT, Json, Kind
from kdns.controlplane.controllers.reconciler import Action, Change, Name, Reconciler, Request, Result
from kdns.controlplane.storage.object_meta import is_terminating

ROOT_CA = "kube-root-ca.crt"
_ABOUT = {"kubernetes.io/description": "The certificates by which clients in the cluster verify the API server."}


class NamespaceObjects(Reconciler):
    """One object in each active namespace: created if it is missing, its fields restored. Requests are namespaces."""

    def __init__(self, name: str, kind: Kind, metadata: Json, fields: Mapping[str, object]) -> None:
        self.name, self.kind, self._metadata, self._fields = name, kind, metadata, fields
        self.watches, self.ignores_own_writes_of = (NAMESPACE, kind), frozenset({kind})
        self._active: set[str] = set()
        self._objects: dict[str, Json] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        kind, (namespace, name), obj, _ = change
        if kind is NAMESPACE:
            is_active = obj is not None and not is_terminating(obj)
            (self._active.add if is_active else self._active.discard)(name)
            return ((name,),)
        if name != self._metadata["name"]:
            return ()
        self._objects.pop(namespace, None)
        if obj:
            self._objects[namespace] = obj
        return ((namespace,),)

    def reconcile(self, request: Request) -> Result:
        (namespace,) = request.name
        obj = self._objects.get(namespace)
        if namespace not in self._active or (obj and {**obj, **self._fields} == obj):
            return Result()
        if obj:
            return Result((Action("update", self.kind, {**obj, **self._fields}),))
        metadata = {**self._metadata, "namespace": namespace}
        return Result((Action("create", self.kind, {"metadata": metadata, **self._fields}),))


def service_accounts() -> NamespaceObjects:
    return NamespaceObjects("service-account-controller", SERVICE_ACCOUNT, {"name": "default"}, {})


def root_ca(certificates: str) -> NamespaceObjects:
    """`certificates` are PEM."""
    metadata = {"name": ROOT_CA, "annotations": _ABOUT}
    return NamespaceObjects("root-ca-certificate-publisher", CONFIG_MAP, metadata, {"data": {"ca.crt": certificates}})
