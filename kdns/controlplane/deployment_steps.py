"""The steps of a Deployment's rollout as writes: ReplicaSets that grow, shrink or are no longer kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kdns.cluster.objects import Key
from kdns.controlplane.controller import Action, Notice, Outcome
from kdns.controlplane.deployment_sets import newest, revision_of, sized
from kdns.controlplane.deployment_status import NO_LIMIT
from kdns.controlplane.kinds import DEPLOYMENT, REPLICA_SET, Json
from kdns.controlplane.rollouts import is_rolling, proportional_sizes, wanted
from kdns.controlplane.workloads import count, is_leaving


@dataclass(frozen=True, slots=True)
class Rollout:
    """One Deployment with its ReplicaSets: `new` has the present template, `olds` (oldest first) have former ones."""

    deployment: Json
    new: Json | None
    olds: tuple[Json, ...]

    @property
    def every(self) -> list[Json]:
        """All ReplicaSets."""
        return [*self.olds, *([self.new] if self.new else [])]

    @property
    def limit(self) -> int:
        """How many old ReplicaSets are kept."""
        limit = self.deployment["spec"].get("revisionHistoryLimit")
        return NO_LIMIT if limit is None else int(limit)


def scaled(rollout: Rollout) -> Outcome | None:
    """The ReplicaSets in proportion to the Deployment's new size; None when nothing has to change."""
    deployment, new, olds = rollout.deployment, rollout.new, rollout.olds
    active = [each for each in rollout.every if wanted(each)]
    if len(active) <= 1:
        only = active[0] if active else new or newest(olds)
        sizes = {key_of(only): wanted(deployment)} if only else {}
    elif new and wanted(new) == wanted(deployment) == count(new.get("status"), "availableReplicas"):
        sizes = {key_of(each): 0 for each in active if each is not new} | {key_of(new): wanted(new)}
    elif is_rolling(deployment):
        sizes = proportional_sizes(deployment, rollout.every)
    else:  # nothing grows while old Pods end; only what is noted on the ReplicaSets changes, or nothing would go on
        sizes = {key_of(each): wanted(each) for each in active}
    step = resized(deployment, sizes, rollout.every, annotate=True)
    return step if step.actions else None


def resized(deployment: Json, sizes: dict[Key, int], sets: Iterable[Json], *, annotate: bool = False) -> Outcome:
    """ReplicaSets with new sizes; with `annotate` also those that keep theirs, if what is noted on them changes."""
    actions, notices = [], []
    for each in sets:
        size = sizes.get(key_of(each), wanted(each))
        changed = sized(each, deployment, size)
        if size != wanted(each):
            notices.append(scaling(deployment, each["metadata"]["name"], wanted(each), size))
        elif not (annotate and key_of(each) in sizes and changed != each):
            continue
        actions.append(Action("update", REPLICA_SET, changed))
    return Outcome(actions, notices)


def scaling(deployment: Json, name: str, before: int, after: int) -> Notice:
    """What is told of a ReplicaSet that grows or shrinks."""
    way = "up" if after > before else "down"
    message = f"Scaled {way} replica set {name} from {before} to {after}"
    return Notice(DEPLOYMENT, deployment, "Normal", "ScalingReplicaSet", message)


def surplus(rollout: Rollout) -> list[Action]:
    """Deletions of the oldest ReplicaSets that have no Pods, beyond the history limit."""
    olds = sorted((each for each in rollout.olds if not is_leaving(each)), key=revision_of)
    beyond = olds[: max(0, len(olds) - rollout.limit)]
    return [Action("delete", REPLICA_SET, each) for each in beyond if _is_idle(each)]


def _is_idle(replica_set: Json) -> bool:
    status, meta = replica_set.get("status"), replica_set["metadata"]
    seen = count(status, "observedGeneration") >= count(meta, "generation")
    return seen and not wanted(replica_set) and not count(status, "replicas")


def key_of(obj: Json) -> Key:
    """Namespace and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
