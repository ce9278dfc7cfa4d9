"""The ReplicaSet controller, also of ReplicationControllers (kube-controller-manager: pkg/controller/replicaset)."""

from __future__ import annotations

from typing import Final

from kdns.controlplane.apimachinery.conditions import is_ready
from kdns.controlplane.apimachinery.kinds import REPLICA_SET, Json, Kind
from kdns.controlplane.kinds.pod.pod import is_finished, node_of
from kdns.controlplane.simulation.workloads.controller import Plan, PodController, View
from kdns.controlplane.simulation.workloads.pods import desired_replicas, is_active
from kdns.controlplane.storage.object_meta import is_terminating

_NAMES: Final = {True: "replicaset-controller", False: "replication-controller"}


class ReplicaSets(PodController):
    """As many Pods as spec.replicas; slots are numbers. Finished and terminating Pods are replaced."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(_NAMES[kind == REPLICA_SET], kind)

    def plan(self, view: View) -> Plan:
        active, size = list(filter(is_active, view.pods)), desired_replicas(view.owner)
        if len(active) > size:
            active.sort(key=rank)
        ready, available = view.ready_and_available(active)
        leaving = sum(is_terminating(pod) and not is_finished(pod) for pod in view.pods)
        labels = ((view.template.get("metadata") or {}).get("labels") or {}).items()
        status = {
            "replicas": len(active),
            **({"terminatingReplicas": leaving} if self.kind == REPLICA_SET else {}),
            **view.counted(
                fullyLabeledReplicas=sum(labels <= (pod["metadata"].get("labels") or {}).items() for pod in active),
                readyReplicas=ready,
                availableReplicas=available,
            ),
        }
        return Plan(status, range(size), dict(enumerate(active[:size])), surplus=active[size:][::-1])


def rank(pod: Json) -> tuple[bool, bool, str]:
    """The sort key of deletion; the highest is deleted first: without a Node, not Ready, the youngest.

    Differs: kube-controller-manager also uses pod-deletion-cost, the number of Pods on the Node, and restarts.
    """
    return not node_of(pod), not is_ready(pod), pod["metadata"].get("creationTimestamp") or ""
