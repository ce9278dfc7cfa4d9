"""The simulated kubelets of all Nodes, as one controller: the status of Nodes, and Pods that run and end with them.

A Node is Ready unless a client sets its condition; its Pods follow its readiness, and are deleted with it.

Differs: no container runs. A Pod is Ready at once. A deleted Pod is removed at once, or after its preStop sleep. A Node
that is not Ready keeps its Pods, and NoExecute taints evict none. A Pod on a Node that never existed stays Pending.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.conditions import condition_of, is_ready
from kdns.controlplane.apimachinery.kinds import NODE, POD, Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request, Result
from kdns.controlplane.kinds.pod.pod import is_finished, node_of, pod_ips, with_condition
from kdns.controlplane.kinds.service.allocator import Choose
from kdns.controlplane.simulation.nodes.node_status import (
    NODE_ANNOTATIONS,
    internal_ips,
    lacks_node_status,
    node_labels,
    node_status,
    with_legacy_labels,
)
from kdns.controlplane.simulation.nodes.pod_addresses import PodAddresses
from kdns.controlplane.simulation.nodes.pod_status import (
    gated_status,
    is_done,
    is_waiting,
    lacks_status,
    removal_s,
    running_status,
    succeeded_status,
)
from kdns.controlplane.storage.object_meta import is_terminating, timestamp

_CLOCK_SKEW_S: Final = 60.0
"""A Pod whose wait exceeds its grace period by more is removed at once: the clock was set back since the deletion."""

_LOST: Final = "NodeNotReady"
_AT_ONCE: Final[Json] = {"gracePeriodSeconds": 0}


class Kubelet(Reconciler):
    """Requests are Pods by namespace and name, and Nodes by "" and name."""

    name = "kubelet"
    watches = (NODE, POD)

    def __init__(self, config: ClusterConfig, choose: Choose) -> None:
        self._config, self._addresses = config, PodAddresses(config, choose)
        self._nodes: dict[str, Json] = {}
        self._pods: dict[Key, Json] = {}
        """The Pods that are bound to a Node."""
        self._orphans: set[Key] = set()
        """The Pods of deleted Nodes."""

    def observe(self, change: Change) -> Iterable[Name]:
        kind, key, obj, _ = change
        if kind == NODE:
            return self._observe_node(key, obj)
        self._addresses.follow((POD, key), obj)
        self._pods.pop(key, None)
        if obj is None or not node_of(obj):
            self._orphans.discard(key)
            return ()
        self._pods[key] = obj
        node = self._nodes.get(node_of(obj))
        return (key,) if is_waiting(obj) or _was_lost(obj) or node is None or not is_ready(node) else ()

    def _observe_node(self, key: Key, obj: Json | None) -> Iterable[Name]:
        name = key[1]
        self._addresses.follow(
            (NODE, key), {"status": {"podIPs": [{"ip": ip} for ip in internal_ips(obj)]}} if obj else None
        )
        pods = [pod_key for pod_key, pod in self._pods.items() if node_of(pod) == name]
        if obj is None:
            self._nodes.pop(name, None)
            self._orphans.update(pods)
            return pods
        self._nodes[name] = obj
        self._orphans.difference_update(pods)
        return (("", name), *pods)

    def reconcile(self, request: Request) -> Result:
        (namespace, name), now_s = request
        if not namespace:
            return self._report(name, timestamp(now_s))
        pod = self._pods.get((namespace, name))
        if pod is None:
            return Result()
        node = self._nodes.get(node_of(pod))
        if node is None:
            is_orphan = request.key in self._orphans or is_terminating(pod)  # no kubelet would remove it
            return Result((Action("delete", POD, pod, options=_AT_ONCE),) if is_orphan else ())
        if not is_ready(node):
            return _lost(pod, timestamp(now_s))
        if not internal_ips(node):
            return Result()
        if is_terminating(pod):
            wait_s = removal_s(pod) - now_s
            granted_s = pod["metadata"].get("deletionGracePeriodSeconds") or 0
            if 0 < wait_s <= granted_s + _CLOCK_SKEW_S:
                return Result(requeue_after_s=wait_s)
            return Result((Action("delete", POD, pod, options=_AT_ONCE),))
        if is_waiting(pod):
            return self._run(pod, node, timestamp(now_s))
        if _was_lost(pod) and not is_finished(pod):
            return _updated(with_condition(pod, "Ready", "True", timestamp(now_s)))
        return Result()

    def _run(self, pod: Json, node: Json, now: str) -> Result:
        if lacks_status(pod):
            has_own = not (pod.get("spec") or {}).get("hostNetwork") and not pod_ips(pod)
            status = running_status(pod, internal_ips(node), self._addresses.choose() if has_own else [], now)
        else:
            status = succeeded_status(pod, now) if is_done(pod) else gated_status(pod, now)
        return _updated({**pod, "status": status})

    def _report(self, name: str, now: str) -> Result:
        node = self._nodes.get(name)
        if node is None:
            return Result()
        metadata, is_new = node["metadata"], lacks_node_status(node)
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        desired = node_labels(name, self._config.platform, labels) if is_new else with_legacy_labels(labels)
        notes = {**NODE_ANNOTATIONS, **annotations} if is_new else annotations
        if (desired, notes) != (labels, annotations):
            registered = {**node, "metadata": {**metadata, "labels": desired, "annotations": notes}}
            return Result((Action("update", NODE, registered),))
        if not is_new:
            return Result()
        addresses = internal_ips(node) or self._addresses.choose()
        pods_max = min(network.num_addresses for network in self._config.pod_cidrs)
        status = node_status(node.get("status") or {}, name, addresses, pods_max, now, self._config.platform)
        return Result((Action("update", NODE, {**node, "status": status}, "status"),))


def _updated(pod: Json) -> Result:
    return Result((Action("update", POD, pod, "status"),))


def _lost(pod: Json, now: str) -> Result:
    if is_finished(pod) or is_terminating(pod) or not is_ready(pod):
        return Result()
    event = Event(POD, pod, "Warning", _LOST, "Node is not ready")
    return Result(_updated(with_condition(pod, "Ready", "False", now, reason=_LOST)).actions, (event,))


def _was_lost(pod: Json) -> bool:
    return (condition_of(pod, "Ready") or {}).get("reason") == _LOST
