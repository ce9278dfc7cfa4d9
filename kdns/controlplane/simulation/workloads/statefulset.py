"""The StatefulSet controller: Pods with ordinals, created, deleted and updated in order.

Differs: PersistentVolumeClaims stay, whatever the retention policy says; while a set shrinks, Pods that are not Ready
are deleted like others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.inert import CLAIM
from kdns.controlplane.apimachinery.kinds import CONTROLLER_REVISION, POD, STATEFUL_SET, Json
from kdns.controlplane.controllers.reconciler import Action, Change, Name
from kdns.controlplane.simulation.workloads.controller import Plan, PodController, Slot, View
from kdns.controlplane.simulation.workloads.pods import (
    count,
    desired_replicas,
    int_or_percent,
    new_pod,
    with_labels,
)
from kdns.controlplane.simulation.workloads.revisions import REVISION_HASH, label_of, revision_label, template_of
from kdns.controlplane.storage.object_meta import is_terminating, key_of

POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_POD_NAME = re.compile(r"(?P<set>.*)-(?P<ordinal>[0-9]{1,9})")


class StatefulSets(PodController):
    """Slots are ordinals."""

    def __init__(self) -> None:
        super().__init__("statefulset-controller", STATEFUL_SET, CONTROLLER_REVISION)
        self.watches = (*self.watches, CLAIM)
        self._claims: set[Key] = set()

    def observe(self, change: Change) -> Iterable[Name]:
        if change.kind == CLAIM:
            (self._claims.add if change.obj else self._claims.discard)(change.key)
            return ()
        return super().observe(change)

    def adopts(self, owner: Json, obj: Json) -> bool:
        return "data" in obj or _ordinal(obj, owner) is not None

    def plan(self, view: View) -> Plan:
        first, size, partition = _first(view), desired_replicas(view.owner), _partition(view)
        ordinals = range(first, first + size)
        pods = {ordinal: pod for pod in view.pods if (ordinal := _ordinal(pod, view.owner)) is not None}
        update, current = _revisions(view)
        strategy = view.spec.get("updateStrategy") or {}
        rolling, is_rolling = strategy.get("rollingUpdate") or {}, strategy.get("type") == "RollingUpdate"
        outdated = [
            pods[ordinal]
            for ordinal in reversed(ordinals)
            if ordinal >= partition and ordinal in pods and revision_label(pods[ordinal]) != label_of(update)
        ]
        return Plan(
            _status(view, pods.values(), update, current),
            ordinals,
            {ordinal: pods[ordinal] for ordinal in ordinals if ordinal in pods},
            [pods[ordinal] for ordinal in sorted(pods, reverse=True) if ordinal not in ordinals],
            outdated if is_rolling else (),
            max(1, int_or_percent(rolling.get("maxUnavailable"), size, up=True)),
            in_order=view.spec.get("podManagementPolicy") != "Parallel",
        )

    def created(self, view: View, slot: Slot) -> list[Action]:
        (update, current), ordinal = _revisions(view), int(slot)
        claims = _claims(view.owner, ordinal)
        pod = _new_pod(view.owner, current if ordinal < _partition(view) else update, ordinal, claims)
        lacking = [claim for claim in claims if key_of(claim) not in self._claims]
        return [*(Action("create", CLAIM, claim) for claim in lacking), Action("create", POD, pod)]


def _ordinal(pod: Json, owner: Json) -> int | None:
    """None for a Pod whose name is not one of the set's."""
    match = _POD_NAME.fullmatch(pod["metadata"]["name"])
    return int(match["ordinal"]) if match and match["set"] == owner["metadata"]["name"] else None


def _first(view: View) -> int:
    return count(view.spec.get("ordinals"), "start")


def _partition(view: View) -> int:
    """The first ordinal that gets the update revision."""
    return _first(view) + count((view.spec.get("updateStrategy") or {}).get("rollingUpdate"), "partition")


def _revisions(view: View) -> tuple[Json, Json]:
    """The update revision, and the current one: the latest that all Pods had."""
    current = view.history.named((view.owner.get("status") or {}).get("currentRevision") or "")
    return view.history.update, current or view.history.update


def _new_pod(owner: Json, revision: Json, ordinal: int, claims: Iterable[Json]) -> Json:
    """The set's claims replace volumes of the template with their names."""
    name = f"{owner['metadata']['name']}-{ordinal}"
    labels = {POD_NAME: name, POD_INDEX: str(ordinal), REVISION_HASH: label_of(revision)}
    pod = with_labels(new_pod(STATEFUL_SET, owner, template_of(revision)), labels)
    service = (owner.get("spec") or {}).get("serviceName") or ""
    spec = {**pod["spec"], "hostname": name, **({"subdomain": service} if service else {})}
    claimed = {claim["metadata"]["name"].removesuffix(f"-{name}"): claim for claim in claims}
    volumes = [
        *({"name": volume, "persistentVolumeClaim": {"claimName": f"{volume}-{name}"}} for volume in claimed),
        *(volume for volume in spec.get("volumes") or () if volume.get("name") not in claimed),
    ]
    pod["metadata"]["name"] = name
    return {**pod, "spec": {**spec, **({"volumes": volumes} if volumes else {})}}


def _claims(owner: Json, ordinal: int) -> list[Json]:
    spec, meta = owner.get("spec") or {}, owner["metadata"]
    selected = (spec.get("selector") or {}).get("matchLabels") or {}
    claims = []
    for template in spec.get("volumeClaimTemplates") or ():
        source = template.get("metadata") or {}
        metadata = {
            **({"annotations": source["annotations"]} if source.get("annotations") else {}),
            "name": f"{source.get('name') or ''}-{meta['name']}-{ordinal}",
            "namespace": meta.get("namespace", ""),
            "labels": {**(source.get("labels") or {}), **selected},
        }
        claims.append({"metadata": metadata, "spec": template.get("spec") or {}})
    return claims


def _status(view: View, pods: Iterable[Json], update: Json, current: Json) -> Json:
    """Counts and revisions; the update revision becomes the current one when all Pods have it."""
    pods, size = list(pods), desired_replicas(view.owner)
    labels = [revision_label(pod) for pod in pods if not is_terminating(pod)]
    (ready, available), updated = view.ready_and_available(pods), labels.count(label_of(update))
    is_rolling = (view.spec.get("updateStrategy") or {}).get("type") == "RollingUpdate"
    if is_rolling and len(pods) == ready == updated == size:
        current = update
    return {
        "replicas": len(pods),
        "availableReplicas": available,
        **view.counted(readyReplicas=ready, currentReplicas=labels.count(label_of(current)), updatedReplicas=updated),
        "currentRevision": label_of(current),
        "updateRevision": label_of(update),
    }
