"""What becomes of Pods on nodes that are not ready, or tainted NoExecute (node lifecycle and taint eviction).

Differs: a node that is not ready keeps its Pods; Kubernetes evicts them after five minutes.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.endpointpods import is_terminating, ready_condition
from kdns.controlplane.kinds import NODE, POD, Json, Kind
from kdns.controlplane.metadata import timestamp
from kdns.controlplane.nodes import evicting_taints, is_ready, stays_s
from kdns.controlplane.podplaces import PodPlaces
from kdns.controlplane.pods import is_finished, node_of, with_condition

_LOST = "NodeNotReady"


class NodeLifecycle:
    """Subjects are Pods by namespace and name. Ready comes back with the node where it went with it."""

    name = "node-controller"
    follows = (NODE, POD)
    settled: frozenset[Kind] = frozenset()

    def __init__(self) -> None:
        self._nodes: dict[str, Json] = {}
        self._pods: dict[Key, Json] = {}
        self._places = PodPlaces()
        self._tainted_s: dict[Key, float] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """A Pod, or all Pods of a node that is not as it was."""
        _ = revision
        if kind == NODE:
            before = self._nodes.pop(key[1], None)
            if obj is None:
                return ()
            self._nodes[key[1]] = obj
            if _state(obj) == _state(before):
                return ()
            there = self._places.on(key[1])
            for pod in there if not evicting_taints(obj) else ():
                self._tainted_s.pop(pod, None)
            return there
        if old := self._pods.pop(key, None):
            self._places.remove(key, node_of(old))
        if obj is None or not evicting_taints(self._nodes.get(node_of(obj)) or {}):
            self._tainted_s.pop(key, None)
        if obj is None or not node_of(obj) or is_finished(obj) or is_terminating(obj):
            return ()
        self._pods[key] = obj
        self._places.put(key, node_of(obj))
        return (key,) if self._is_affected(obj) else ()

    def _is_affected(self, pod: Json) -> bool:
        node = self._nodes.get(node_of(pod))
        return node is not None and (not is_ready(node) or bool(evicting_taints(node)) or _was_lost(pod))

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """Evict the Pod, now or later, or turn its Ready condition with that of its node."""
        namespace, name = subject
        pod = self._pods.get((namespace, name))
        node = self._nodes.get(node_of(pod)) if pod else None
        if pod is None or node is None:
            return Outcome()
        begun_s = self._tainted_s.setdefault((namespace, name), now_s) if evicting_taints(node) else now_s
        wait_s = stays_s(pod, node, begun_s, now_s)
        if wait_s == 0:
            told = Notice(POD, pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {namespace}/{name}")
            return Outcome((Action("delete", POD, pod),), (told,))
        _ = since_s
        ready = ready_condition(pod) or {}
        if not is_ready(node) and ready.get("status") == "True":
            changed = with_condition(pod, "Ready", "False", timestamp(now_s), reason=_LOST)
            told = Notice(POD, pod, "Warning", _LOST, "Node is not ready")
            return Outcome((Action("update", POD, changed, "status"),), (told,), wait_s)
        if is_ready(node) and _was_lost(pod):
            changed = with_condition(pod, "Ready", "True", timestamp(now_s))
            return Outcome((Action("update", POD, changed, "status"),), again_s=wait_s)
        return Outcome(again_s=wait_s)

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """Nobody is told."""
        _ = subject, error
        return None


def _state(node: Json | None) -> tuple[bool, list[Json]]:
    return (is_ready(node), evicting_taints(node)) if node else (True, [])


def _was_lost(pod: Json) -> bool:
    return (ready_condition(pod) or {}).get("reason") == _LOST
