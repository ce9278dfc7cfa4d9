"""The controller that tells every namespace by which certificates to know the API: ConfigMap `kube-root-ca.crt`.

(Kubernetes: root-ca-certificate-publisher of kube-controller-manager, which runs where --root-ca-file is given.)
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.kinds import CONFIG_MAP, NAMESPACE, Json, Kind

NAME = "kube-root-ca.crt"
_ABOUT = {"kubernetes.io/description": "The certificates by which clients in the cluster verify the API server."}


class RootCa:
    """Subjects are namespaces by name. `certificates` are PEM."""

    name = "root-ca-certificate-publisher"
    follows = (NAMESPACE, CONFIG_MAP)
    settled: frozenset[Kind] = frozenset({CONFIG_MAP})

    def __init__(self, certificates: str) -> None:
        self._data = {"ca.crt": certificates}
        self._active: set[str] = set()
        self._published: dict[str, Json] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Note which namespaces are in use, and what is published in them."""
        _ = revision
        if kind is NAMESPACE:
            in_use = obj is not None and not obj["metadata"].get("deletionTimestamp")
            (self._active.add if in_use else self._active.discard)(key[1])
            return ((key[1],),)
        if key[1] != NAME:
            return ()
        self._published.pop(key[0], None)
        if obj:
            self._published[key[0]] = obj
        return ((key[0],),)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """Make the ConfigMap where it is missing, and mend its data; what else people add to it stays."""
        _ = since_s, now_s
        (namespace,) = subject
        if namespace not in self._active:
            return Outcome()
        if (published := self._published.get(namespace)) is None:
            meta = {"name": NAME, "namespace": namespace, "annotations": _ABOUT}
            return Outcome((Action("create", CONFIG_MAP, {"metadata": meta, "data": self._data}),))
        if published.get("data") == self._data:
            return Outcome()
        return Outcome((Action("update", CONFIG_MAP, {**published, "data": self._data}),))

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """Nobody is told."""
        _ = subject, error
        return None
