"""The node lifecycle controller: Ready of Pods on Nodes that are not Ready, and eviction by NoExecute taints.

Differs: a Node that is not Ready keeps its Pods; Kubernetes evicts them after five minutes.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.controllers.nodes.placement import evicting_taints, eviction_in_s
from kdns.controlplane.controllers.nodes.pods_by_node import PodsByNode
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request, Result
from kdns.controlplane.meta.conditions import condition_of, is_ready
from kdns.controlplane.meta.kinds import NODE, POD, Json
from kdns.controlplane.resources.pod.pod import is_finished, node_of, with_condition
from kdns.controlplane.storage.object_meta import is_terminating, timestamp

_LOST = "NodeNotReady"


class NodeLifecycle(Reconciler):
    """Requests are Pods by namespace and name. A Pod becomes Ready again with its Node."""

    name = "node-controller"
    watches = (NODE, POD)

    def __init__(self) -> None:
        self._nodes: dict[str, Json] = {}
        self._pods: dict[Key, Json] = {}
        self._pods_by_node = PodsByNode()
        self._tainted_s: dict[Key, float] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        """Returns the Pod, or all Pods of a Node whose readiness or taints change."""
        kind, key, obj, _ = change
        if kind == NODE:
            before = self._nodes.pop(key[1], None)
            if obj is None:
                return ()
            self._nodes[key[1]] = obj
            if _state(obj) == _state(before):
                return ()
            pods = self._pods_by_node.on(key[1])
            for pod in pods if not evicting_taints(obj) else ():
                self._tainted_s.pop(pod, None)
            return pods
        if old := self._pods.pop(key, None):
            self._pods_by_node.remove(key, node_of(old))
        if obj is None or not evicting_taints(self._nodes.get(node_of(obj)) or {}):
            self._tainted_s.pop(key, None)
        if obj is None or not node_of(obj) or is_finished(obj) or is_terminating(obj):
            return ()
        self._pods[key] = obj
        self._pods_by_node.put(key, node_of(obj))
        return (key,) if self._is_affected(obj) else ()

    def _is_affected(self, pod: Json) -> bool:
        node = self._nodes.get(node_of(pod))
        return node is not None and (not is_ready(node) or bool(evicting_taints(node)) or _was_lost(pod))

    def reconcile(self, request: Request) -> Result:
        """Evicts the Pod, now or later, or sets its Ready condition to that of its Node."""
        (namespace, name), now_s = request
        pod = self._pods.get((namespace, name))
        node = self._nodes.get(node_of(pod)) if pod else None
        if pod is None or node is None:
            return Result()
        begun_s = now_s
        if evicting_taints(node):  # since now at the latest: the clock may have gone back
            begun_s = self._tainted_s[namespace, name] = min(now_s, self._tainted_s.get((namespace, name), now_s))
        wait_s = eviction_in_s(pod, node, begun_s, now_s)
        if wait_s == 0:
            event = Event(POD, pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {namespace}/{name}")
            return Result((Action("delete", POD, pod),), (event,))
        ready = condition_of(pod, "Ready") or {}
        if not is_ready(node) and ready.get("status") == "True":
            changed = with_condition(pod, "Ready", "False", timestamp(now_s), reason=_LOST)
            event = Event(POD, pod, "Warning", _LOST, "Node is not ready")
            return Result((Action("update", POD, changed, "status"),), (event,), wait_s)
        if is_ready(node) and _was_lost(pod):
            changed = with_condition(pod, "Ready", "True", timestamp(now_s))
            return Result((Action("update", POD, changed, "status"),), requeue_after_s=wait_s)
        return Result(requeue_after_s=wait_s)


def _state(node: Json | None) -> tuple[bool, list[Json]]:
    return (is_ready(node), evicting_taints(node)) if node else (True, [])


def _was_lost(pod: Json) -> bool:
    return (condition_of(pod, "Ready") or {}).get("reason") == _LOST
