"""The DaemonSet controller: one Pod on each eligible Node (kube-controller-manager: pkg/controller/daemon).

With maxSurge, a Pod of the new template starts beside its predecessor, which is deleted when the new one is available.
Differs: the controller sets spec.nodeName, where kube-scheduler would bind the Pod by its node affinity.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.controlplane.apimachinery.kinds import CONTROLLER_REVISION, DAEMON_SET, NODE, POD, Json
from kdns.controlplane.controllers.reconciler import Action, Change, Name
from kdns.controlplane.kinds.pod.pod import node_of
from kdns.controlplane.kinds.workloads import TEMPLATE_GENERATION
from kdns.controlplane.simulation.nodes.scheduler import daemon_tolerations, fits_node, untolerated
from kdns.controlplane.simulation.workloads.controller import Plan, PodController, Slot, View
from kdns.controlplane.simulation.workloads.pods import int_or_percent, is_active, new_pod, with_labels
from kdns.controlplane.simulation.workloads.revisions import REVISION_HASH, label_of, revision_label

GENERATION = "pod-template-generation"
BESIDE = "/"


class DaemonSets(PodController):
    """Slots are Nodes by name; one that ends in `BESIDE` is for a second Pod on the Node."""

    def __init__(self) -> None:
        super().__init__("daemonset-controller", DAEMON_SET, CONTROLLER_REVISION)
        self.watches = (DAEMON_SET, NODE, *self.watches[1:])
        self._nodes: dict[str, Json] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        kind, key, obj, _ = change
        if kind != NODE:
            return super().observe(change)
        old = self._nodes.pop(key[1], None)
        if obj is not None:
            self._nodes[key[1]] = obj
        return () if old and obj and _scheduling_fields(old) == _scheduling_fields(obj) else tuple(self.workloads)

    def plan(self, view: View) -> Plan:
        should, may = self._eligible(view.template.get("spec") or {})
        pods_on: dict[str, list[Json]] = {}
        for pod in sorted(view.pods, key=_staying_first):
            pods_on.setdefault(node_of(pod), []).append(pod)
        label = label_of(view.history.update)
        update = view.spec.get("updateStrategy") or {}
        rolling, is_rolling = update.get("rollingUpdate") or {}, update.get("type") == "RollingUpdate"
        surge = int_or_percent(rolling.get("maxSurge"), len(should), up=True) if is_rolling else 0
        most = int_or_percent(rolling.get("maxUnavailable"), len(should), up=True)
        pods: dict[Slot, Json] = {}
        for node in may & pods_on.keys():
            first, *others = pods_on[node]
            newer = next((pod for pod in others if is_active(pod) and revision_label(pod) == label), None)
            if newer and surge and view.is_available(first) and not view.is_available(newer):
                pods[node], pods[node + BESIDE] = first, newer
            else:
                pods[node] = newer or first
        placed = {pod["metadata"]["name"] for pod in pods.values()}
        surplus = [pod for on_node in pods_on.values() for pod in on_node if pod["metadata"]["name"] not in placed]
        running = [pods[node] for node in should if node in pods]
        outdated = [pod for pod in running if revision_label(pod) != label]
        beside = [node_of(pod) + BESIDE for pod in outdated if view.is_available(pod)]
        beside.sort(key=lambda slot: slot not in pods)  # Pods that have started keep their slot
        ready, available = view.ready_and_available(running)
        status = {
            "currentNumberScheduled": len(running),
            "numberMisscheduled": len(pods_on.keys() - set(should)),
            "desiredNumberScheduled": len(should),
            "numberReady": ready,
            **view.counted(
                updatedNumberScheduled=len(running) - len(outdated),
                numberAvailable=available,
                numberUnavailable=len(should) - available,
            ),
        }
        replaced = outdated if is_rolling else ()
        return Plan(status, [*should, *beside[:surge]], pods, surplus, replaced, most)

    def _eligible(self, spec: Json) -> tuple[list[str], set[str]]:
        """The Nodes that should run a Pod of this spec, and those that may keep one."""
        tolerations = daemon_tolerations(spec)
        should, may = [], set()
        for name, node in sorted(self._nodes.items()):
            if spec.get("nodeName") not in {None, "", name} or not fits_node(spec, node):
                continue
            effects = untolerated(tolerations, node)
            if "NoExecute" not in effects:
                may.add(name)
            if not effects & {"NoExecute", "NoSchedule"}:
                should.append(name)
        return should, may

    def created(self, view: View, slot: Slot) -> list[Action]:
        pod = new_pod(self.kind, view.owner, view.template)
        generation = (view.owner["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "1")
        labels = {REVISION_HASH: label_of(view.history.update), GENERATION: generation}
        node = str(slot).removesuffix(BESIDE)
        spec = {**pod["spec"], "tolerations": daemon_tolerations(pod["spec"]), "nodeName": node}
        return [Action("create", POD, {**with_labels(pod, labels), "spec": spec})]


def _scheduling_fields(node: Json) -> tuple[object, object]:
    return node["metadata"].get("labels"), (node.get("spec") or {}).get("taints")


def _staying_first(pod: Json) -> tuple[bool, str, str]:
    """Active Pods before others, then by age."""
    return not is_active(pod), pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]
