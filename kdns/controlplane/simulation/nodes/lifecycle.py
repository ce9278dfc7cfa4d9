"""The node lifecycle controller: Pods are as ready as their Node, and are deleted with it.

A Node is Ready unless a client sets its condition.
Differs: a Node that is not Ready keeps its Pods, and NoExecute taints evict none; Kubernetes evicts after five minutes.
A Pod on a Node that never existed stays Pending until it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.conditions import condition_of, is_ready
from kdns.controlplane.apimachinery.kinds import NODE, POD, Json
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request, Result
from kdns.controlplane.kinds.pod.pod import is_finished, node_of, with_condition
from kdns.controlplane.simulation.nodes.pods_by_node import PodsByNode
from kdns.controlplane.storage.object_meta import is_terminating, timestamp

_LOST = "NodeNotReady"


class NodeLifecycle(Reconciler):
    """Requests are Pods by namespace and name."""

    name = "node-controller"
    watches = (NODE, POD)

    def __init__(self) -> None:
        self._nodes: dict[str, Json] = {}
        self._pods: dict[Key, Json] = {}
        self._pods_by_node = PodsByNode()
        self._orphans: set[Key] = set()
        """The Pods of deleted Nodes."""

    def observe(self, change: Change) -> Iterable[Name]:
        """Returns the Pod, or all Pods of a Node that is deleted or whose readiness changes."""
        kind, key, obj, _ = change
        if kind == NODE:
            return self._observe_node(key[1], obj)
        if old := self._pods.pop(key, None):
            self._pods_by_node.remove(key, node_of(old))
        if obj is None:
            self._orphans.discard(key)
            return ()
        if not node_of(obj):
            return ()
        self._pods[key] = obj
        self._pods_by_node.put(key, node_of(obj))
        return (key,) if self._is_affected(key, obj) else ()

    def _observe_node(self, name: str, node: Json | None) -> Iterable[Name]:
        before, pods = self._nodes.pop(name, None), self._pods_by_node.on(name)
        if node is None:
            self._orphans.update(pods)
            return pods
        self._nodes[name] = node
        self._orphans.difference_update(pods)
        was_ready = is_ready(before) if before else True
        return pods if is_ready(node) != was_ready else ()

    def _is_affected(self, key: Key, pod: Json) -> bool:
        node = self._nodes.get(node_of(pod))
        if node is None:
            return self._is_orphaned(key, pod)
        return not is_ready(node) or _was_lost(pod)

    def _is_orphaned(self, key: Key, pod: Json) -> bool:
        """Returns whether a Pod without a Node must go: no kubelet would end it."""
        return key in self._orphans or is_terminating(pod)

    def reconcile(self, request: Request) -> Result:
        """Deletes the Pod of a deleted Node, or sets the Pod's Ready condition to that of its Node."""
        pod = self._pods.get(request.key)
        if pod is None:
            return Result()
        node = self._nodes.get(node_of(pod))
        if node is None:
            gone = Action("delete", POD, pod, options={"gracePeriodSeconds": 0})
            return Result((gone,) if self._is_orphaned(request.key, pod) else ())
        if is_finished(pod) or is_terminating(pod):
            return Result()
        ready = condition_of(pod, "Ready") or {}
        if not is_ready(node) and ready.get("status") == "True":
            changed = with_condition(pod, "Ready", "False", timestamp(request.now_s), reason=_LOST)
            event = Event(POD, pod, "Warning", _LOST, "Node is not ready")
            return Result((Action("update", POD, changed, "status"),), (event,))
        if is_ready(node) and _was_lost(pod):
            changed = with_condition(pod, "Ready", "True", timestamp(request.now_s))
            return Result((Action("update", POD, changed, "status"),))
        return Result()


def _was_lost(pod: Json) -> bool:
    return (condition_of(pod, "Ready") or {}).get("reason") == _LOST
