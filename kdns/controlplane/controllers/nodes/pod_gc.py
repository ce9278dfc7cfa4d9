"""The Pod garbage collector: deletes Pods whose Node was deleted (kube-controller-manager: pkg/controller/podgc).

Differs: at once, and not after 40 seconds; a Pod on a Node that never existed stays Pending until it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kdns.cluster.objects import Key
from kdns.controlplane.controllers.nodes.pods_by_node import PodsByNode
from kdns.controlplane.controllers.reconciler import Action, Change, Name, Reconciler, Request, Result
from kdns.controlplane.meta.kinds import NODE, POD, Json
from kdns.controlplane.resources.pod.pod import node_of
from kdns.controlplane.storage.object_meta import is_terminating

DELETED_NODES_MAX: Final = 1000
"""Deleted Nodes that are remembered; Kubernetes looks for Nodes that are missing for 40 seconds."""


class PodGarbageCollector(Reconciler):
    """Requests are Pods by namespace and name."""

    name = "pod-garbage-collector"
    watches = (NODE, POD)

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._deleted_nodes: dict[str, None] = {}
        """The last that were deleted: a Pod may be bound to one of them meanwhile."""
        self._pods: dict[Key, Json] = {}
        self._pods_by_node = PodsByNode()

    def observe(self, change: Change) -> Iterable[Name]:
        """Indexes Pods by Node; the Pods of a deleted Node."""
        kind, key, obj, _ = change
        if kind == NODE:
            (self._nodes.add if obj else self._nodes.discard)(key[1])
            self._deleted_nodes.pop(key[1], None)
            if obj:
                return ()
            self._deleted_nodes[key[1]] = None
            if len(self._deleted_nodes) > DELETED_NODES_MAX:
                del self._deleted_nodes[next(iter(self._deleted_nodes))]
            return self._pods_by_node.on(key[1])
        if before := self._pods.pop(key, None):
            self._pods_by_node.remove(key, node_of(before))
        if obj is None:
            return ()
        self._pods[key] = obj
        self._pods_by_node.put(key, node_of(obj))
        return (key,) if self._is_orphaned(obj) else ()

    def _is_orphaned(self, pod: Json) -> bool:
        """Returns whether the Pod's Node was deleted, or the Pod is terminating on a Node that does not exist."""
        node = node_of(pod)
        return node in self._deleted_nodes or (is_terminating(pod) and node not in self._nodes)

    def reconcile(self, request: Request) -> Result:
        """Deletes the Pod with grace period 0."""
        namespace, name = request.name
        pod = self._pods.get((namespace, name))
        if pod is None or not self._is_orphaned(pod):
            return Result()
        return Result((Action("delete", POD, pod, options={"gracePeriodSeconds": 0}),))
