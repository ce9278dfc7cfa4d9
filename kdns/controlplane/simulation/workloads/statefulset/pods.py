"""The Pods of a StatefulSet: ordinals, names, labels, PersistentVolumeClaims and availability."""

from __future__ import annotations

import re
from typing import Final

from kdns.controlplane.apimachinery.kinds import STATEFUL_SET, Json
from kdns.controlplane.simulation.workloads.pods import new_pod, pod_available_in_s
from kdns.controlplane.simulation.workloads.replicas import count
from kdns.controlplane.simulation.workloads.revisions import REVISION_HASH
from kdns.controlplane.storage.object_meta import is_terminating

POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_POD_NAME = re.compile(r"(?P<set>.*)-(?P<ordinal>[0-9]{1,9})")


def ordinal_of(pod: Json, owner: Json) -> int | None:
    """Returns the ordinal in the Pod's name; None for a name that is not one of the set's."""
    match = _POD_NAME.fullmatch(pod["metadata"]["name"])
    return int(match["ordinal"]) if match and match["set"] == owner["metadata"]["name"] else None


def first_ordinal(owner: Json) -> int:
    """Returns spec.ordinals.start."""
    return count((owner.get("spec") or {}).get("ordinals"), "start")


def revision_name(pod: Json) -> str:
    return (pod["metadata"].get("labels") or {}).get(REVISION_HASH) or ""


def is_running_and_ready(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running" and pod_available_in_s(pod, 0, 0.0) is not None


def wait_s(pod: Json, min_ready_s: int, now_s: float) -> float | None:
    """Returns seconds until the Pod is available, 0 if it is; None for one that is terminating or not Ready."""
    if is_terminating(pod) or not is_running_and_ready(pod):
        return None
    return pod_available_in_s(pod, min_ready_s, now_s)


def identified(pod: Json, owner: Json, ordinal: int) -> Json:
    meta, spec, name = pod["metadata"], pod.get("spec") or {}, f"{owner['metadata']['name']}-{ordinal}"
    labels = {**(meta.get("labels") or {}), POD_NAME: name, POD_INDEX: str(ordinal)}
    claims = claim_names(owner, ordinal)
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": claim}} for each, claim in claims.items()]
    volumes += [each for each in spec.get("volumes") or () if each.get("name") not in claims]
    if volumes:
        spec = {**spec, "volumes": volumes}
    return {**pod, "metadata": {**meta, "labels": labels}, "spec": spec}


def new_ordinal_pod(owner: Json, template: Json, ordinal: int, revision: str) -> Json:
    name = f"{owner['metadata']['name']}-{ordinal}"
    pod = new_pod(STATEFUL_SET, owner, template, name)
    pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), REVISION_HASH: revision}
    pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
    service = (owner.get("spec") or {}).get("serviceName") or ""
    pod["spec"] = {**pod["spec"], "hostname": name, **({"subdomain": service} if service else {})}
    return identified(pod, owner, ordinal)


def claim_names(owner: Json, ordinal: int) -> dict[str, str]:
    templates = (owner.get("spec") or {}).get("volumeClaimTemplates") or ()
    names = [(each.get("metadata") or {}).get("name") or "" for each in templates]
    return {name: f"{name}-{owner['metadata']['name']}-{ordinal}" for name in names}


def claims_of(owner: Json, ordinal: int) -> list[Json]:
    """Returns the claims of the Pod of an ordinal. Differs: they stay, whatever the retention policy says."""
    spec, meta = owner.get("spec") or {}, owner["metadata"]
    selected = (spec.get("selector") or {}).get("matchLabels") or {}
    claims = []
    for template, name in zip(
        spec.get("volumeClaimTemplates") or (), claim_names(owner, ordinal).values(), strict=True
    ):
        given = template.get("metadata") or {}
        metadata = {
            **{field: given[field] for field in ("annotations",) if given.get(field)},
            "name": name,
            "namespace": meta.get("namespace", ""),
            "labels": {**(given.get("labels") or {}), **selected},
        }
        claims.append({"metadata": metadata, "spec": template.get("spec") or {}})
    return claims
