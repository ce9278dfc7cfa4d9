"""The DaemonSet controller: one Pod on each eligible Node (kube-controller-manager: pkg/controller/daemon).

Differs: a rolling update replaces maxUnavailable and maxSurge Pods at a time, none beside its predecessor; the
controller sets spec.nodeName, where kube-scheduler would bind the Pod by its node affinity.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import CONTROLLER_REVISION, DAEMON_SET, NODE, POD, Json
from kdns.controlplane.controllers.events import combined_events
from kdns.controlplane.controllers.reconciler import (
    Action,
    Change,
    Event,
    Name,
    Reconciler,
    Request,
    Result,
    status_update,
)
from kdns.controlplane.kinds.apps.defaults import TEMPLATE_GENERATION
from kdns.controlplane.kinds.pod.pod import is_finished
from kdns.controlplane.simulation.nodes.placement import daemon_tolerations, fits_node, on_node_only, untolerated
from kdns.controlplane.simulation.workloads.index import ACTIONS_MAX, WorkloadIndex
from kdns.controlplane.simulation.workloads.pods import Suffix, generated_names, new_pod, pod_available_in_s
from kdns.controlplane.simulation.workloads.replicas import count, int_or_percent
from kdns.controlplane.simulation.workloads.revisions import REVISION_HASH, history
from kdns.controlplane.storage.object_meta import is_terminating

GENERATION = "pod-template-generation"


@dataclass(slots=True)
class _Nodes:
    """A DaemonSet by node: its Pods, the nodes that should run one and that may keep one, and the present hash."""

    owner: Json
    now_s: float
    hash: str
    on_node: dict[str, list[Json]]
    should: list[str]
    may: set[str]

    def is_available(self, pod: Json) -> bool:
        least_s = count(self.owner["spec"], "minReadySeconds")
        return not is_terminating(pod) and pod_available_in_s(pod, least_s, self.now_s) == 0

    def is_updated(self, pod: Json) -> bool:
        """Returns whether the Pod has the present template."""
        return (pod["metadata"].get("labels") or {}).get(REVISION_HASH) == self.hash


class DaemonSets(Reconciler):
    """Requests are DaemonSets by namespace and name."""

    name = "daemonset-controller"
    watches = (DAEMON_SET, NODE, POD, CONTROLLER_REVISION)

    def __init__(self, suffix: Suffix) -> None:
        self._suffix = suffix
        self._index = WorkloadIndex(DAEMON_SET, POD, CONTROLLER_REVISION)
        self._nodes: dict[str, Json] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        """Returns the set, or the set of a Pod or ControllerRevision.

        A Node whose labels or taints change affects all sets.
        """
        kind, key, obj, _ = change
        if kind != NODE:
            return self._index.observe(kind, key, obj)
        old = self._nodes.pop(key[1], None)
        if obj is not None:
            self._nodes[key[1]] = obj
        return () if old and obj and _scheduling_fields(old) == _scheduling_fields(obj) else tuple(self._index.all)

    def reconcile(self, request: Request) -> Result:
        """Writes ControllerRevisions, then the status, then Pods: missing and surplus ones before outdated ones."""
        key = request.key
        owner = self._index.all.get(key)
        if owner is None:
            return Result()
        pods, orphans = self._index.claimed(key, POD)
        revisions, changes = self._index.claimed(key, CONTROLLER_REVISION)
        if orphans or changes:
            return Result([*orphans, *changes])
        if is_terminating(owner):
            return Result()
        revision_history = history(DAEMON_SET, owner, revisions)
        if revision_history.due or revision_history.update is None:
            return Result(revision_history.due)
        text = revision_history.update["metadata"]["labels"].get(REVISION_HASH) or ""
        nodes = self._nodes_of(owner, pods, text, request.now_s)
        actions = status_update(DAEMON_SET, owner, _status(nodes))
        steps, events = self._ensure_pods(nodes)
        if not steps and (owner["spec"].get("updateStrategy") or {}).get("type") == "RollingUpdate":
            steps, events = self._steps(nodes, [], _outdated(nodes), [])
        used = {(pod["metadata"].get("labels") or {}).get(REVISION_HASH) for pod in pods} | {text}
        live = [
            each["metadata"]["name"]
            for each in revision_history.revisions
            if (each["metadata"].get("labels") or {}).get(REVISION_HASH) in used
        ]
        limit = owner["spec"].get("revisionHistoryLimit")
        surplus = revision_history.outdated(-1 if limit is None else limit, live)
        waits = [pod_available_in_s(pod, count(owner["spec"], "minReadySeconds"), request.now_s) for pod in pods]
        requeue_after_s = min((wait for wait in waits if wait), default=None)
        return Result([*actions, *steps, *surplus], events, requeue_after_s)

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        """Returns FailedCreate for a Pod."""
        owner = self._index.all.get(request.key)
        if owner is None or not action.creates(POD):
            return None
        return Event(DAEMON_SET, owner, "Warning", "FailedCreate", f"Error creating: {error.message}")

    def _nodes_of(self, owner: Json, pods: list[Json], text: str, now_s: float) -> _Nodes:
        on_node: dict[str, list[Json]] = {}
        for pod in sorted(pods, key=_oldest_first):
            on_node.setdefault((pod.get("spec") or {}).get("nodeName") or "", []).append(pod)
        spec = (owner["spec"].get("template") or {}).get("spec") or {}
        tolerations = daemon_tolerations(spec)
        should, may = [], set()
        for name, node in sorted(self._nodes.items()):
            if spec.get("nodeName") not in {None, "", name} or not fits_node(spec, node):
                continue
            against = untolerated(tolerations, node)
            if "NoExecute" not in against:
                may.add(name)
            if not against & {"NoExecute", "NoSchedule"}:
                should.append(name)
        return _Nodes(owner, now_s, text, on_node, should, may)

    def _ensure_pods(self, nodes: _Nodes) -> tuple[list[Action], list[Event]]:
        """Creates Pods on nodes without one; deletes finished ones, duplicates, and those on ineligible nodes."""
        missing_on = [name for name in nodes.should if not nodes.on_node.get(name)]
        deleted_pods, events = [], list[Event]()
        for name, pods in nodes.on_node.items():
            staying = [pod for pod in pods if not is_terminating(pod)]
            if name not in nodes.may:
                deleted_pods += staying
                continue
            deleted_pods += (ended := [pod for pod in staying if is_finished(pod)])
            events += [_finished_event(nodes.owner, pod, name) for pod in ended]
            deleted_pods += [pod for pod in staying if not is_finished(pod)][1:]
        return self._steps(nodes, missing_on, deleted_pods, events)

    def _steps(
        self, nodes: _Nodes, missing_on: list[str], deleted_pods: list[Json], events: list[Event]
    ) -> tuple[list[Action], list[Event]]:
        taken = self._index.parts[POD].objects
        names = generated_names(nodes.owner, len(missing_on[:ACTIONS_MAX]), self._suffix, taken)
        made = [_pod(nodes, node, name) for node, name in zip(missing_on, names, strict=False)]
        deleted_pods = deleted_pods[:ACTIONS_MAX]
        actions = [*(Action("delete", POD, pod) for pod in deleted_pods), *(Action("create", POD, pod) for pod in made)]
        created = [f"Created pod: {pod['metadata']['name']}" for pod in made]
        deleted = [f"Deleted pod: {pod['metadata']['name']}" for pod in deleted_pods]
        events += combined_events(DAEMON_SET, nodes.owner, "SuccessfulDelete", deleted)
        return actions, events + combined_events(
            DAEMON_SET, nodes.owner, "SuccessfulCreate", created, more=len(missing_on) > ACTIONS_MAX
        )


def _pod(nodes: _Nodes, node: str, name: str) -> Json:
    template = nodes.owner["spec"].get("template") or {}
    pod = new_pod(DAEMON_SET, nodes.owner, template, name, f"{nodes.owner['metadata']['name']}-")
    generation = (nodes.owner["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "1")
    labels = {**(pod["metadata"].get("labels") or {}), REVISION_HASH: nodes.hash, GENERATION: generation}
    spec = {**on_node_only(pod["spec"], node), "tolerations": daemon_tolerations(pod["spec"]), "nodeName": node}
    return {"metadata": {**pod["metadata"], "labels": labels}, "spec": spec}


def _scheduling_fields(node: Json) -> tuple[object, object]:
    return node["metadata"].get("labels"), (node.get("spec") or {}).get("taints")


def _oldest_first(pod: Json) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]


def _outdated(nodes: _Nodes) -> list[Json]:
    """Returns the Pods of other templates that may be replaced now: those that are not available, and a step's."""
    rolling = (nodes.owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    total = len(nodes.should)
    step = sum(int_or_percent(rolling.get(name), total, up=True) for name in ("maxUnavailable", "maxSurge"))
    pods = [pods[0] for name in nodes.should if (pods := nodes.on_node.get(name))]
    available = [pod for pod in pods if nodes.is_available(pod)]
    broken = [pod for pod in pods if not (nodes.is_updated(pod) or nodes.is_available(pod) or is_terminating(pod))]
    room = max(1, step) - (total - len(available))
    return [*broken, *[pod for pod in available if not nodes.is_updated(pod)][: max(0, room)]]


def _finished_event(owner: Json, pod: Json, node: str) -> Event:
    which = f"{pod['metadata']['namespace']}/{pod['metadata']['name']} on node {node}"
    if (pod.get("status") or {}).get("phase") == "Failed":
        message = f"Found failed daemon pod {which}, will try to kill it"
        return Event(DAEMON_SET, owner, "Warning", "FailedDaemonPod", message)
    message = f"Found succeeded daemon pod {which}, will try to delete it"
    return Event(DAEMON_SET, owner, "Normal", "SucceededDaemonPod", message)


def _status(nodes: _Nodes) -> Json:
    """Returns the status: counts of nodes; of several Pods on a node the oldest is used."""
    first = [pods[0] for name in nodes.should if (pods := nodes.on_node.get(name))]
    waits = [pod_available_in_s(pod, count(nodes.owner["spec"], "minReadySeconds"), nodes.now_s) for pod in first]
    available = sum(wait == 0 for wait in waits)
    updated = sum(any(nodes.is_updated(pod) for pod in nodes.on_node.get(name, ())) for name in nodes.should)
    counts = {
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": len(nodes.should) - available,
        "observedGeneration": count(nodes.owner["metadata"], "generation"),
    }
    status: Json = {
        "currentNumberScheduled": len(first),
        "numberMisscheduled": sum(name not in nodes.should for name in nodes.on_node),
        "desiredNumberScheduled": len(nodes.should),
        "numberReady": sum(wait is not None for wait in waits),
        **{name: number for name, number in counts.items() if number},
    }
    if conditions := (nodes.owner.get("status") or {}).get("conditions"):
        status["conditions"] = conditions
    return status
