"""The Pods of a StatefulSet: their numbers, names, labels and claims, and the state each is in."""

from __future__ import annotations

import re
from typing import Final

from kdns.controlplane.kinds import POD, STATEFUL_SET, Json
from kdns.controlplane.revisions import REVISION_HASH
from kdns.controlplane.workloads import count, is_leaving, new_pod, owner_reference, unavailable_for_s

POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_NUMBERED = re.compile(r"(?P<set>.*)-(?P<number>[0-9]{1,9})")


def number_of(pod: Json, owner: Json) -> int | None:
    """The number in the Pod's name; None for a name that is not one of the set's."""
    found = _NUMBERED.fullmatch(pod["metadata"]["name"])
    return int(found["number"]) if found and found["set"] == owner["metadata"]["name"] else None


def first_number(owner: Json) -> int:
    """spec.ordinals.start."""
    return count((owner.get("spec") or {}).get("ordinals"), "start")


def revision_name(pod: Json) -> str:
    """The revision that the Pod was made from."""
    return (pod["metadata"].get("labels") or {}).get(REVISION_HASH) or ""


def is_running_and_ready(pod: Json) -> bool:
    """Whether the Pod runs and is ready."""
    return (pod.get("status") or {}).get("phase") == "Running" and unavailable_for_s(pod, 0, 0.0) is not None


def wait_s(pod: Json, min_ready_s: int, now_s: float) -> float | None:
    """Seconds until the Pod is available, 0 if it is; None if that depends on more than time."""
    if is_leaving(pod) or not is_running_and_ready(pod):
        return None
    return unavailable_for_s(pod, min_ready_s, now_s)


def identified(pod: Json, owner: Json, number: int) -> Json:
    """The Pod with the labels and volumes that its number gives it."""
    meta, spec, name = pod["metadata"], pod.get("spec") or {}, f"{owner['metadata']['name']}-{number}"
    labels = {**(meta.get("labels") or {}), POD_NAME: name, POD_INDEX: str(number)}
    claims = claim_names(owner, number)
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": claim}} for each, claim in claims.items()]
    volumes += [each for each in spec.get("volumes") or () if each.get("name") not in claims]
    if volumes:
        spec = {**spec, "volumes": volumes}
    return {**pod, "metadata": {**meta, "labels": labels}, "spec": spec}


def numbered_pod(owner: Json, template: Json, number: int, revision: str) -> Json:
    """The Pod of a number, from a template that a revision holds."""
    name = f"{owner['metadata']['name']}-{number}"
    pod = new_pod(STATEFUL_SET, owner, template, name)
    pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), REVISION_HASH: revision}
    pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
    service = (owner.get("spec") or {}).get("serviceName") or ""
    pod["spec"] = {**pod["spec"], "hostname": name, **({"subdomain": service} if service else {})}
    return identified(pod, owner, number)


def claim_names(owner: Json, number: int) -> dict[str, str]:
    """Volume → name of its claim, for the Pod of a number."""
    templates = (owner.get("spec") or {}).get("volumeClaimTemplates") or ()
    names = [(each.get("metadata") or {}).get("name") or "" for each in templates]
    return {name: f"{name}-{owner['metadata']['name']}-{number}" for name in names}


def claims_of(owner: Json, number: int) -> list[Json]:
    """The claims of the Pod of a number."""
    spec, meta = owner.get("spec") or {}, owner["metadata"]
    selected = (spec.get("selector") or {}).get("matchLabels") or {}
    keep = (spec.get("persistentVolumeClaimRetentionPolicy") or {}).get("whenDeleted") != "Delete"
    reference = {**owner_reference(STATEFUL_SET, owner), "controller": False, "blockOwnerDeletion": False}
    found = []
    for template, name in zip(spec.get("volumeClaimTemplates") or (), claim_names(owner, number).values(), strict=True):
        given = template.get("metadata") or {}
        metadata = {
            **{field: given[field] for field in ("annotations",) if given.get(field)},
            "name": name,
            "namespace": meta.get("namespace", ""),
            "labels": {**(given.get("labels") or {}), **selected},
            **({} if keep else {"ownerReferences": [reference]}),
        }
        found.append({"metadata": metadata, "spec": template.get("spec") or {}})
    return found


def given_up(claim: Json, pod: Json) -> Json:
    """The claim of a Pod that a smaller set has no more: it goes with the Pod."""
    meta = claim["metadata"]
    others = [row for row in meta.get("ownerReferences") or () if row.get("kind") != STATEFUL_SET.kind]
    reference = {**owner_reference(POD, pod), "controller": False, "blockOwnerDeletion": False}
    return {**claim, "metadata": {**meta, "ownerReferences": [*others, reference]}}


def is_given_up(claim: Json) -> bool:
    """Whether the claim goes with a Pod."""
    return any(row.get("kind") == POD.kind for row in claim["metadata"].get("ownerReferences") or ())
