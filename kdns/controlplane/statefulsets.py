"""StatefulSets: numbered Pods that come, go and change in order (kube-controller-manager: statefulset).

Each look takes the steps that are possible now; with OrderedReady that is one Pod at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.kinds import CLAIM, CONTROLLER_REVISION, POD, STATEFUL_SET, Json, Kind
from kdns.controlplane.revisions import history, template_of
from kdns.controlplane.statefulset_look import Look, first_updated, replace_outdated, status_of
from kdns.controlplane.statefulset_pods import (
    claim_names,
    claims_of,
    identified,
    number_of,
    numbered_pod,
    revision_name,
    tied,
    wait_s,
)
from kdns.controlplane.status import StatusError
from kdns.controlplane.workloads import (
    Dependents,
    Workloads,
    count,
    is_finished,
    is_leaving,
    with_status,
)


class StatefulSets:
    """Subjects are StatefulSets by namespace and name."""

    name = "statefulset-controller"
    follows = (STATEFUL_SET, POD, CONTROLLER_REVISION, CLAIM)
    settled: frozenset[Kind] = frozenset()

    def __init__(self) -> None:
        self._index = Workloads(STATEFUL_SET, POD, CONTROLLER_REVISION)
        self._claims = Dependents()
        self._attempts: dict[Key, str] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """The set itself, or that of a Pod or revision. Claims are only looked up."""
        _ = revision
        if kind == CLAIM:
            self._claims.apply(key, obj)
            return ()
        if kind == STATEFUL_SET and obj is None:
            self._attempts.pop(key, None)
        return self._index.learn(kind, key, obj)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """Revisions, then status, then Pods."""
        _ = since_s
        key = (subject[0], subject[1])
        owner = self._index.all.get(key)
        if owner is None:
            return Outcome()
        revisions, changes = self._index.claimed(key, CONTROLLER_REVISION)
        pods, strays = self._index.claimed(key, POD)
        strays = [each for each in strays if number_of(each.obj, owner) is not None]
        if changes or strays:
            return Outcome([*changes, *strays])
        known = history(STATEFUL_SET, owner, revisions, self._index.parts[CONTROLLER_REVISION].objects)
        if is_leaving(owner):
            return Outcome()
        if known.due or known.update is None:
            return Outcome(known.due)
        current = known.named((owner.get("status") or {}).get("currentRevision") or "") or known.update
        look = Look(owner, known, known.update, current, now_s)
        look.pods = {number: pod for pod in pods if (number := number_of(pod, owner)) is not None}
        self._attempts.pop(key, None)
        status = status_of(look)
        actions = with_status(STATEFUL_SET, owner, status)
        self._step(look)
        created = [action for action in look.actions if action.verb == "create" and action.kind == POD]
        if created:
            self._attempts[key] = created[0].obj["metadata"]["name"]
        live = {known.update["metadata"]["name"], current["metadata"]["name"], *map(revision_name, look.pods.values())}
        limit = owner["spec"].get("revisionHistoryLimit")
        surplus = known.outdated(-1 if limit is None else limit, live)
        waits = [wait_s(pod, count(look.spec, "minReadySeconds"), now_s) for pod in look.pods.values()]
        again_s = min((wait for wait in waits if wait), default=None)
        return Outcome([*actions, *look.actions, *surplus], look.notices, again_s)

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """FailedCreate for a Pod that could not be made; nothing for conflicts."""
        key = (subject[0], subject[1])
        owner, pod = self._index.all.get(key), self._attempts.get(key)
        if owner is None or pod is None or not isinstance(error, StatusError) or error.code == 409:
            return None
        name = owner["metadata"]["name"]
        message = f"create Pod {pod} in StatefulSet {name} failed error: {error.message}"
        return Notice(STATEFUL_SET, owner, "Warning", "FailedCreate", message)

    def _step(self, look: Look) -> None:
        """Missing Pods first, then those that are too many, then those of an older revision."""
        if all(self._replica(look, number) for number in look.numbers) and self._condemned(look) and not look.actions:
            replace_outdated(look)

    def _replica(self, look: Look, number: int) -> bool:
        """Make or mend the Pod of a number; False when the others have to wait."""
        pod = look.pods.get(number)
        if look.full:
            return False
        if pod is None:
            self._make(look, number)
            return not look.in_order
        if is_finished(pod):
            if not is_leaving(pod):
                look.delete(pod)
            return not look.in_order
        if (pod.get("status") or {}).get("phase") == "Pending":
            look.actions += self._missing_claims(look, number)
        if look.in_order and not look.is_available(pod):
            return False
        metadata = identified(pod, look.owner, number)["metadata"]
        if not is_leaving(pod) and metadata != pod["metadata"]:
            look.actions.append(Action("update", POD, {**pod, "metadata": metadata}))
        look.actions += self._tied_claims(look, pod, number, condemned=False)
        return True

    def _make(self, look: Look, number: int) -> None:
        revision = look.current if number < first_updated(look) else look.update
        pod = numbered_pod(look.owner, template_of(revision), number, revision["metadata"]["name"])
        name = pod["metadata"]["name"]
        for action in self._missing_claims(look, number):
            look.actions.append(action)
            claim = action.obj["metadata"]["name"]
            look.tell("SuccessfulCreate", f"create Claim {claim} Pod {name} in StatefulSet {look.name} success")
        look.actions.append(Action("create", POD, pod))
        look.tell("SuccessfulCreate", f"create Pod {name} in StatefulSet {look.name} successful")

    def _missing_claims(self, look: Look, number: int) -> list[Action]:
        wanted_claims = claims_of(look.owner, number)
        here = self._claims.objects
        keys = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in wanted_claims]
        return [Action("create", CLAIM, each) for key, each in zip(keys, wanted_claims, strict=True) if key not in here]

    def _condemned(self, look: Look) -> bool:
        """Let Pods beyond the size go, the highest number first; False when others have to wait."""
        surplus = sorted((number for number in look.pods if number not in look.numbers), reverse=True)
        healthy = [*look.numbers, *reversed(surplus)]
        first_ill = next((number for number in healthy if not look.is_available(look.pods.get(number))), None)
        for number in surplus:
            pod = look.pods[number]
            if look.full:
                return False
            if is_leaving(pod):
                if look.in_order:
                    return False
                continue
            if look.in_order and not look.is_available(pod) and number != first_ill:
                return False
            look.actions += self._tied_claims(look, pod, number, condemned=True)
            look.delete(pod)
            if look.in_order:
                return False
        return True

    def _tied_claims(self, look: Look, pod: Json, number: int, *, condemned: bool) -> list[Action]:
        """Writes of a Pod's claims whose owner is not the one that the retention policy wants."""
        namespace, here = look.owner["metadata"]["namespace"], self._claims.objects
        names = claim_names(look.owner, number).values()
        claims = [here[namespace, name] for name in names if (namespace, name) in here]
        wanted_claims = [tied(claim, look.owner, pod, condemned=condemned) for claim in claims]
        pairs = zip(claims, wanted_claims, strict=True)
        return [Action("update", CLAIM, fresh) for claim, fresh in pairs if fresh != claim and not is_leaving(claim)]
