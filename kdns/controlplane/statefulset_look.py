"""One look at a StatefulSet: its Pods by number as they are now, its status, and what a rolling update may do."""

from __future__ import annotations

from dataclasses import dataclass, field

from kdns.controlplane.controller import Action, Notice
from kdns.controlplane.kinds import POD, STATEFUL_SET, Json
from kdns.controlplane.revisions import History
from kdns.controlplane.rollouts import int_or_percent, wanted
from kdns.controlplane.statefulset_pods import first_number, is_running_and_ready, revision_name, wait_s
from kdns.controlplane.workloads import CHUNK, count, is_leaving, unavailable_for_s


@dataclass(slots=True)
class Look:
    """One StatefulSet and its Pods by number, as they are now, and what is to be done."""

    owner: Json
    history: History
    update: Json
    current: Json
    now_s: float
    pods: dict[int, Json] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)

    @property
    def spec(self) -> Json:
        """The set's spec."""
        spec: Json = self.owner["spec"]
        return spec

    @property
    def numbers(self) -> range:
        """The numbers that there should be Pods of."""
        first = first_number(self.owner)
        return range(first, first + wanted(self.owner))

    @property
    def in_order(self) -> bool:
        """Whether one Pod waits for the other."""
        return self.spec.get("podManagementPolicy") != "Parallel"

    @property
    def full(self) -> bool:
        """Whether this look has done enough."""
        return len(self.actions) >= CHUNK

    def is_available(self, pod: Json | None) -> bool:
        """Whether there is such a Pod, ready for long enough."""
        return pod is not None and wait_s(pod, count(self.spec, "minReadySeconds"), self.now_s) == 0

    def delete(self, pod: Json) -> None:
        """Let a Pod go."""
        self.actions.append(Action("delete", POD, pod))
        self.tell("SuccessfulDelete", f"delete Pod {pod['metadata']['name']} in StatefulSet {self.name} successful")

    def tell(self, reason: str, message: str) -> None:
        """An Event of the set."""
        self.notices.append(Notice(STATEFUL_SET, self.owner, "Normal", reason, message))

    @property
    def name(self) -> str:
        """The set's name."""
        return str(self.owner["metadata"]["name"])


def first_updated(look: Look) -> int:
    """The first number whose Pod is made from the new revision; partition counts from the first number."""
    update, first = look.spec.get("updateStrategy") or {}, look.numbers.start
    if update.get("type") != "RollingUpdate":
        return first
    rolling = update.get("rollingUpdate")
    if rolling is None:
        current = look.current["metadata"]["name"]
        return first + [revision_name(pod) for pod in look.pods.values() if not is_leaving(pod)].count(current)
    return first + count(rolling, "partition")


def replace_outdated(look: Look) -> None:
    """Let Pods of another revision go, the highest number first, as many as may be missing at a time."""
    update = look.spec.get("updateStrategy") or {}
    if update.get("type") != "RollingUpdate":
        return
    rolling = update.get("rollingUpdate") or {}
    most = rolling.get("maxUnavailable")
    room = 1 if most is None else max(1, int_or_percent(most, wanted(look.owner), up=True))
    least = look.numbers.start + count(rolling, "partition")
    room -= sum(not look.is_available(look.pods.get(number)) for number in look.numbers)
    for number in reversed(look.numbers):
        pod = look.pods.get(number)
        if number < least or look.full:
            return
        if pod is None or is_leaving(pod) or revision_name(pod) == look.update["metadata"]["name"]:
            continue
        if look.is_available(pod):
            if room <= 0:
                return
            room -= 1
        look.delete(pod)
        if most is None:
            return


def status_of(look: Look) -> Json:
    """Counts, and the revisions; the new one becomes the current one when all Pods have it."""
    names = {"currentRevision": look.current["metadata"]["name"], "updateRevision": look.update["metadata"]["name"]}
    pods = list(look.pods.values())
    staying = [revision_name(pod) for pod in pods if not is_leaving(pod)]
    ready = [pod for pod in pods if is_running_and_ready(pod)]
    waits = [unavailable_for_s(pod, count(look.spec, "minReadySeconds"), look.now_s) for pod in ready]
    counts = {
        "replicas": len(pods),
        "readyReplicas": len(ready),
        "availableReplicas": sum(wait == 0 for wait in waits),
        "currentReplicas": staying.count(names["currentRevision"]),
        "updatedReplicas": staying.count(names["updateRevision"]),
    }
    update, size = look.spec.get("updateStrategy") or {}, wanted(look.owner)
    whole = all(counts[name] == size for name in ("replicas", "readyReplicas", "updatedReplicas"))
    if update.get("type") == "RollingUpdate" and whole:
        names["currentRevision"] = names["updateRevision"]
        counts["currentReplicas"] = counts["updatedReplicas"]
    status: Json = {
        "observedGeneration": count(look.owner["metadata"], "generation"),
        **{name: number for name, number in counts.items() if number or name in {"replicas", "availableReplicas"}},
        **names,
        "collisionCount": look.history.collisions,
    }
    if conditions := (look.owner.get("status") or {}).get("conditions"):
        status["conditions"] = conditions
    return status
