"""The simulated kubelets of all Nodes, as one controller: the status of Nodes, and Pods that run and end.

Differs: no container runs. A Pod is Ready at once. A deleted Pod is removed at once, or after its preStop sleep.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.conditions import is_ready
from kdns.controlplane.apimachinery.kinds import NODE, POD, Json, Kind
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request, Result
from kdns.controlplane.kinds.pod.pod import node_of, pod_ips
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
    leaves_at_s,
    observed_status,
    running_status,
    succeeded_status,
)
from kdns.controlplane.storage.object_meta import is_terminating, timestamp

_CLOCK_SKEW_S: Final = 60.0
"""A Pod whose wait exceeds its grace period by more leaves at once: the clock went back since the deletion."""


class Kubelet(Reconciler):
    """Requests are Pods by namespace and name, and nodes by "" and name."""

    name = "kubelet"
    watches = (NODE, POD)

    def __init__(self, config: ClusterConfig, choose: Choose) -> None:
        self._config, self._addresses = config, PodAddresses(config, choose)
        self._nodes: dict[str, Json] = {}
        self._pods: dict[Key, Json] = {}
        self._uids: dict[tuple[Kind, Key], str] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        """Indexes addresses that are in use; the Pod, if the kubelet has something to do for it."""
        kind, key, obj, _ = change
        if kind == NODE:
            return self._observe_node(key, obj)
        self._follow(POD, key, obj, obj)
        self._pods.pop(key, None)
        if obj is None or not is_waiting(obj):
            return ()
        self._pods[key] = obj
        return (key,)

    def _observe_node(self, key: Key, obj: Json | None) -> Iterable[Name]:
        name = key[1]
        self._nodes.pop(name, None)
        self._follow(NODE, key, obj, {"status": {"podIPs": [{"ip": ip} for ip in internal_ips(obj)]}} if obj else None)
        if obj is None:
            return ()
        self._nodes[name] = obj
        return (("", name), *(pod_key for pod_key, pod in self._pods.items() if node_of(pod) == name))

    def _follow(self, kind: Kind, key: Key, obj: Json | None, addressed: Json | None) -> None:
        uid = obj["metadata"]["uid"] if obj else self._uids.pop((kind, key), "")
        if obj:
            self._uids[kind, key] = uid
        self._addresses.follow(uid, addressed)

    def reconcile(self, request: Request) -> Result:
        """Returns the work of the Pod's kubelet.

        A Node that is missing, not Ready or without address has no kubelet.
        """
        (namespace, name), now_s = request
        if not namespace:
            return self._report(name, timestamp(now_s))
        pod = self._pods.get((namespace, name))
        node = self._nodes.get(node_of(pod)) if pod else None
        if pod is None or node is None or not (is_ready(node) and internal_ips(node)):
            return Result()
        if is_terminating(pod):
            wait_s = leaves_at_s(pod) - now_s
            granted_s = pod["metadata"].get("deletionGracePeriodSeconds") or 0
            is_running = 0 < wait_s <= granted_s + _CLOCK_SKEW_S
            return (
                Result(requeue_after_s=wait_s)
                if is_running
                else Result((Action("delete", POD, pod, options={"gracePeriodSeconds": 0}),))
            )
        return self._run(pod, node, timestamp(now_s))

    def _run(self, pod: Json, node: Json, now: str) -> Result:
        if lacks_status(pod):
            has_own = not (pod.get("spec") or {}).get("hostNetwork") and not pod_ips(pod)
            addresses = self._addresses.choose() if has_own else []
            status = running_status(pod, internal_ips(node), addresses, now)
            begun = [] if pod_ips(pod) else _started(pod)
        else:
            status, begun = succeeded_status(pod, now) if is_done(pod) else gated_status(pod, now), []
        seen = {**pod, "status": observed_status(pod, status)}
        return Result((Action("update", POD, seen, "status"),), begun)

    def _report(self, name: str, now: str) -> Result:
        node = self._nodes.get(name)
        if node is None:
            return Result()
        metadata, is_new = node["metadata"], lacks_node_status(node)
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        wanted = node_labels(name, self._config.platform, labels) if is_new else with_legacy_labels(labels)
        notes = {**NODE_ANNOTATIONS, **annotations} if is_new else annotations
        if (wanted, notes) != (labels, annotations):
            registered = {**node, "metadata": {**metadata, "labels": wanted, "annotations": notes}}
            return Result((Action("update", NODE, registered),))
        if not is_new:
            return Result()
        given = node.get("status") or {}
        addresses = internal_ips(node) or self._addresses.choose()
        given = {**given, "addresses": [*(given.get("addresses") or ()), *_rows(addresses, node)]}
        pods_max = min(network.num_addresses for network in self._config.pod_cidrs)
        status = node_status(given, name, addresses, pods_max, now, self._config.platform)
        return Result((Action("update", NODE, {**node, "status": status}, "status"),))


def _rows(addresses: list[str], node: Json) -> list[Json]:
    """Returns the addresses that the Node's status lacks."""
    known = {row.get("type") for row in (node.get("status") or {}).get("addresses") or () if row.get("address")}
    rows = [{"type": "InternalIP", "address": address} for address in addresses]
    rows.append({"type": "Hostname", "address": node["metadata"]["name"]})
    return [row for row in rows if row["type"] not in known]


def _started(pod: Json) -> list[Event]:
    containers = (pod.get("spec") or {}).get("containers") or ()
    return [Event(POD, pod, "Normal", "Started", f"Started container {each['name']}") for each in containers]
