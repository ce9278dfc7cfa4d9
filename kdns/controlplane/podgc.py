"""The controller that removes Pods whose node was deleted (Kubernetes: pod-garbage-collector).

Differs: at once, and not after 40 seconds; Pods that name a node which never was stay Pending until they are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.endpointpods import is_terminating
from kdns.controlplane.kinds import NODE, POD, Json, Kind
from kdns.controlplane.podplaces import PodPlaces
from kdns.controlplane.pods import node_of


class PodGarbageCollector:
    """Subjects are Pods by namespace and name."""

    name = "pod-garbage-collector"
    follows = (NODE, POD)
    settled: frozenset[Kind] = frozenset()

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._lost: set[str] = set()
        self._pods: dict[Key, Json] = {}
        self._places = PodPlaces()

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Note which Pods are where; those of a node that goes are looked at."""
        _ = revision
        if kind == NODE:
            (self._nodes.add if obj else self._nodes.discard)(key[1])
            (self._lost.discard if obj else self._lost.add)(key[1])
            return () if obj else self._places.on(key[1])
        if before := self._pods.pop(key, None):
            self._places.remove(key, node_of(before))
        if obj is None:
            return ()
        self._pods[key] = obj
        self._places.put(key, node_of(obj))
        return (key,) if self._is_left(obj) else ()

    def _is_left(self, pod: Json) -> bool:
        """Whether there is no kubelet that could end the Pod, and there was one, or it has to end."""
        node = node_of(pod)
        return node in self._lost or (is_terminating(pod) and node not in self._nodes)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """Delete the Pod without grace."""
        _ = since_s, now_s
        namespace, name = subject
        pod = self._pods.get((namespace, name))
        if pod is None or not self._is_left(pod):
            return Outcome()
        return Outcome((Action("delete", POD, pod, options={"gracePeriodSeconds": 0}),))

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """Nobody is told."""
        _ = subject, error
        return None
