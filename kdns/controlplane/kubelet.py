"""Scheduler and kubelet of the simulated node, as a controller: a Pod that nobody runs is put there and runs."""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.allocate import Choose
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.endpointpods import pod_ips
from kdns.controlplane.kinds import POD, Json, Kind
from kdns.controlplane.metadata import timestamp
from kdns.controlplane.pods import PodAddresses, bound, is_waiting, lacks_status, running_status


class Kubelet:
    """Subjects are Pods by namespace and name."""

    name = "kubelet"
    follows = (POD,)
    settled: frozenset[Kind] = frozenset()

    def __init__(self, config: ClusterConfig, choose: Choose) -> None:
        self._config, self._addresses = config, PodAddresses(config, choose)
        self._pods: dict[Key, Json] = {}
        self._uids: dict[Key, str] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Note which addresses the Pod has; Pods that wait for something are looked at."""
        _ = kind, revision
        uid = obj["metadata"]["uid"] if obj else self._uids.get(key, "")
        self._addresses.follow(uid, obj)
        self._pods.pop(key, None)
        if obj is None:
            self._uids.pop(key, None)
            return ()
        self._uids[key] = uid
        if not is_waiting(obj):
            return ()
        self._pods[key] = obj
        return (key,)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """First onto the node, then, when that is written, addresses and readiness."""
        _ = since_s
        namespace, name = subject
        pod = self._pods.get((namespace, name))
        if pod is None:
            return Outcome()
        on_node = bound(pod, self._config)
        if on_node is not pod:
            return Outcome((Action("update", POD, on_node),))
        if not lacks_status(pod):
            return Outcome()
        has_own = not (pod.get("spec") or {}).get("hostNetwork") and not pod_ips(pod)
        addresses = self._addresses.choose() if has_own else []
        status = running_status(pod, self._config, addresses, timestamp(now_s))
        return Outcome((Action("update", POD, {**pod, "status": status}, "status"),))

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """Nobody is told: the log is."""
        _ = subject, error
        return None
