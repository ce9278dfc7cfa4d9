"""DaemonSets: one Pod on each node that fits (kube-controller-manager: daemon).

Differs: the controller itself names the node of a Pod, where kube-scheduler would read it from the affinity.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kdns.cluster.objects import Key
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.defaults_apps import TEMPLATE_GENERATION
from kdns.controlplane.kinds import CONTROLLER_REVISION, DAEMON_SET, NODE, POD, Json, Kind
from kdns.controlplane.placement import daemon_tolerations, fits_node, on_node_only, untolerated
from kdns.controlplane.revisions import REVISION_HASH, history
from kdns.controlplane.rollouts import int_or_percent
from kdns.controlplane.status import StatusError
from kdns.controlplane.workloads import (
    CHUNK,
    Suffix,
    Workloads,
    count,
    generated_names,
    is_finished,
    is_leaving,
    new_pod,
    told,
    unavailable_for_s,
    with_status,
)

GENERATION = "pod-template-generation"


@dataclass(slots=True)
class _Look:
    """One DaemonSet: its Pods by node, the nodes that should and those that may have one, and the present hash."""

    owner: Json
    now_s: float
    hash: str
    on_node: dict[str, list[Json]]
    should: list[str]
    may: set[str]

    def is_available(self, pod: Json) -> bool:
        """Whether the Pod stays and was ready for long enough."""
        least_s = count(self.owner["spec"], "minReadySeconds")
        return not is_leaving(pod) and unavailable_for_s(pod, least_s, self.now_s) == 0

    def is_updated(self, pod: Json) -> bool:
        """Whether the Pod is of the present template."""
        return (pod["metadata"].get("labels") or {}).get(REVISION_HASH) == self.hash


class DaemonSets:
    """Subjects are DaemonSets by namespace and name."""

    name = "daemonset-controller"
    follows = (DAEMON_SET, NODE, POD, CONTROLLER_REVISION)
    settled: frozenset[Kind] = frozenset()

    def __init__(self, suffix: Suffix) -> None:
        self._suffix = suffix
        self._index = Workloads(DAEMON_SET, POD, CONTROLLER_REVISION)
        self._nodes: dict[str, Json] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """The set itself, or that of a Pod or revision; all sets for a node whose labels or taints change."""
        _ = revision
        if kind != NODE:
            return self._index.learn(kind, key, obj)
        old = self._nodes.pop(key[1], None)
        if obj is not None:
            self._nodes[key[1]] = obj
        return () if old and obj and _facts(old) == _facts(obj) else tuple(self._index.all)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """Revisions, then status, then Pods: those that nodes lack or should not have, then those to replace."""
        _ = since_s
        key = (subject[0], subject[1])
        owner = self._index.all.get(key)
        if owner is None:
            return Outcome()
        pods, strays = self._index.claimed(key, POD)
        revisions, changes = self._index.claimed(key, CONTROLLER_REVISION)
        if strays or changes:
            return Outcome([*strays, *changes])
        if is_leaving(owner):
            return Outcome()
        known = history(DAEMON_SET, owner, revisions, self._index.parts[CONTROLLER_REVISION].objects)
        if known.due or known.update is None:
            return Outcome(known.due)
        text = known.update["metadata"]["labels"].get(REVISION_HASH) or ""
        look = self._look(owner, pods, text, now_s)
        actions = with_status(DAEMON_SET, owner, _status(look, known.collisions))
        steps, notices = self._managed(look)
        if not steps and (owner["spec"].get("updateStrategy") or {}).get("type") == "RollingUpdate":
            steps, notices = self._replaced(look)
        used = {(pod["metadata"].get("labels") or {}).get(REVISION_HASH) for pod in pods} | {text}
        live = [
            each["metadata"]["name"]
            for each in known.revisions
            if (each["metadata"].get("labels") or {}).get(REVISION_HASH) in used
        ]
        limit = owner["spec"].get("revisionHistoryLimit")
        surplus = known.outdated(-1 if limit is None else limit, live)
        waits = [unavailable_for_s(pod, count(owner["spec"], "minReadySeconds"), now_s) for pod in pods]
        again_s = min((wait for wait in waits if wait), default=None)
        return Outcome([*actions, *steps, *surplus], notices, again_s)

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """FailedCreate; nothing for conflicts."""
        owner = self._index.all.get((subject[0], subject[1]))
        if owner is None or not isinstance(error, StatusError) or error.code == 409:
            return None
        return Notice(DAEMON_SET, owner, "Warning", "FailedCreate", f"Error creating: {error.message}")

    def _look(self, owner: Json, pods: list[Json], text: str, now_s: float) -> _Look:
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
        return _Look(owner, now_s, text, on_node, should, may)

    def _managed(self, look: _Look) -> tuple[list[Action], list[Notice]]:
        """Pods for nodes without one; deletions of Pods that ended, are too many, or where none should be."""
        surge = _limits(look)[0]
        bare = [name for name in look.should if not look.on_node.get(name)]
        gone, notices = [], list[Notice]()
        for name, pods in look.on_node.items():
            staying = [pod for pod in pods if not is_leaving(pod)]
            if name not in look.may:
                gone += staying
                continue
            gone += (ended := [pod for pod in staying if is_finished(pod)])
            notices += [_ended(look.owner, pod, name) for pod in ended]
            running = [pod for pod in staying if not is_finished(pod)]
            if surge and len(running) > 1:
                kinds = (True, False)
                oldest = [next((pod for pod in running if look.is_updated(pod) is is_new), None) for is_new in kinds]
                gone += [pod for pod in running if not any(pod is kept for kept in oldest)]
            else:
                gone += running[1:]
        return self._steps(look, bare, gone, notices)

    def _replaced(self, look: _Look) -> tuple[list[Action], list[Notice]]:
        """Old Pods go (or, with a surge, new ones start beside them) on as many nodes as may be without a Pod."""
        surge, unavailable = _limits(look)
        broken, candidates = list[Json](), list[Json]()
        replaced, missing, surging = list[Json](), 0, 0
        for name in look.should:
            pods = [pod for pod in look.on_node.get(name, ()) if not is_finished(pod)]
            old = next((pod for pod in pods if not look.is_updated(pod) and not is_leaving(pod)), None)
            new = next((pod for pod in pods if look.is_updated(pod) and not is_leaving(pod)), None)
            if old is None:
                missing += not (new is not None and look.is_available(new))
            elif new is not None:
                surging += 1
                replaced += [old] if look.is_available(new) else []
            elif look.is_available(old):
                candidates.append(old)
            else:
                broken.append(old)
                missing += 1
        if not surge:
            return self._steps(look, [], [*broken, *candidates[: max(0, unavailable - missing)]], [])
        fresh = [*broken, *candidates[: max(0, surge - surging)]]
        return self._steps(look, [(pod.get("spec") or {}).get("nodeName") or "" for pod in fresh], replaced, [])

    def _steps(
        self, look: _Look, bare: list[str], gone: list[Json], notices: list[Notice]
    ) -> tuple[list[Action], list[Notice]]:
        taken = self._index.parts[POD].objects
        names = generated_names(look.owner, len(bare[:CHUNK]), self._suffix, taken)
        made = [_pod(look, node, name) for node, name in zip(bare, names, strict=False)]
        gone = gone[:CHUNK]
        actions = [*(Action("delete", POD, pod) for pod in gone), *(Action("create", POD, pod) for pod in made)]
        created = [f"Created pod: {pod['metadata']['name']}" for pod in made]
        deleted = [f"Deleted pod: {pod['metadata']['name']}" for pod in gone]
        notices += told(DAEMON_SET, look.owner, "SuccessfulDelete", deleted)
        return actions, notices + told(DAEMON_SET, look.owner, "SuccessfulCreate", created, more=len(bare) > CHUNK)


def _pod(look: _Look, node: str, name: str) -> Json:
    template = look.owner["spec"].get("template") or {}
    pod = new_pod(DAEMON_SET, look.owner, template, name, f"{look.owner['metadata']['name']}-")
    generation = (look.owner["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "1")
    labels = {**(pod["metadata"].get("labels") or {}), REVISION_HASH: look.hash, GENERATION: generation}
    spec = {**on_node_only(pod["spec"], node), "tolerations": daemon_tolerations(pod["spec"]), "nodeName": node}
    return {"metadata": {**pod["metadata"], "labels": labels}, "spec": spec}


def _facts(node: Json) -> tuple[object, object]:
    return node["metadata"].get("labels"), (node.get("spec") or {}).get("taints")


def _oldest_first(pod: Json) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]


def _limits(look: _Look) -> tuple[int, int]:
    """(max surge, max unavailable) in nodes; a rolling update never stands still for want of both."""
    update, total = look.owner["spec"].get("updateStrategy") or {}, len(look.should)
    if update.get("type") != "RollingUpdate":
        return 0, 0
    rolling = update.get("rollingUpdate") or {}
    surge = int_or_percent(rolling.get("maxSurge"), total, up=True)
    unavailable = int_or_percent(rolling.get("maxUnavailable"), total, up=True)
    return surge, unavailable if surge or unavailable else 1


def _ended(owner: Json, pod: Json, node: str) -> Notice:
    which = f"{pod['metadata']['namespace']}/{pod['metadata']['name']} on node {node}"
    if (pod.get("status") or {}).get("phase") == "Failed":
        message = f"Found failed daemon pod {which}, will try to kill it"
        return Notice(DAEMON_SET, owner, "Warning", "FailedDaemonPod", message)
    message = f"Found succeeded daemon pod {which}, will try to delete it"
    return Notice(DAEMON_SET, owner, "Normal", "SucceededDaemonPod", message)


def _status(look: _Look, collisions: int) -> Json:
    """Counts of nodes; of several Pods on one node the oldest counts."""
    first = [pods[0] for name in look.should if (pods := look.on_node.get(name))]
    waits = [unavailable_for_s(pod, count(look.owner["spec"], "minReadySeconds"), look.now_s) for pod in first]
    available = sum(wait == 0 for wait in waits)
    updated = sum(any(look.is_updated(pod) for pod in look.on_node.get(name, ())) for name in look.should)
    counts = {
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": len(look.should) - available,
        "observedGeneration": count(look.owner["metadata"], "generation"),
        "collisionCount": collisions,
    }
    status: Json = {
        "currentNumberScheduled": len(first),
        "numberMisscheduled": sum(name not in look.should for name in look.on_node),
        "desiredNumberScheduled": len(look.should),
        "numberReady": sum(wait is not None for wait in waits),
        **{name: number for name, number in counts.items() if number},
    }
    if conditions := (look.owner.get("status") or {}).get("conditions"):
        status["conditions"] = conditions
    return status
