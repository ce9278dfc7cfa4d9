"""The Pods of a StatefulSet: their numbers, names, labels and claims, and the state each is in."""

from __future__ import annotations

import re
from typing import Final

from kdns.controlplane.kinds import POD, STATEFUL_SET, Json, Kind
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
    found = []
    for template, name in zip(spec.get("volumeClaimTemplates") or (), claim_names(owner, number).values(), strict=True):
        given = template.get("metadata") or {}
        metadata = {
            **{field: given[field] for field in ("annotations",) if given.get(field)},
            "name": name,
            "namespace": meta.get("namespace", ""),
            "labels": {**(given.get("labels") or {}), **selected},
            **({} if keep else {"ownerReferences": [_loose_reference(STATEFUL_SET, owner)]}),
        }
        found.append({"metadata": metadata, "spec": template.get("spec") or {}})
    return found


def tied(claim: Json, owner: Json, pod: Json, *, condemned: bool) -> Json:
    """The claim of a Pod with the owner that the retention policy gives it.

    With `whenScaled: Delete` a claim goes with the Pod that a smaller set has no more, with `whenDeleted: Delete` with
    the set; otherwise it stays.
    """
    meta, policy = claim["metadata"], (owner.get("spec") or {}).get("persistentVolumeClaimRetentionPolicy") or {}
    ours = {(STATEFUL_SET.kind, owner["metadata"]["name"]), (POD.kind, pod["metadata"]["name"])}
    references = [row for row in meta.get("ownerReferences") or () if (row.get("kind"), row.get("name")) not in ours]
    if condemned and policy.get("whenScaled") == "Delete":
        references.append(_loose_reference(POD, pod))
    elif policy.get("whenDeleted") == "Delete":
        references.append(_loose_reference(STATEFUL_SET, owner))
    kept = {name: value for name, value in meta.items() if name != "ownerReferences"}
    return {**claim, "metadata": {**kept, **({"ownerReferences": references} if references else {})}}


def _loose_reference(kind: Kind, owner: Json) -> Json:
    return {**owner_reference(kind, owner), "controller": False, "blockOwnerDeletion": False}
