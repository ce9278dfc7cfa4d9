"""The status of a CustomResourceDefinition: accepted names, conditions and stored versions.

(kube-apiserver: apiextensions controllers for naming, establishing and approval.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kdns.controlplane.apimachinery.conditions import is_true, set_condition
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.custom.definition import APPROVED, is_protected


def status_of(definition: Json, others: Iterable[Kind], before: Json) -> Json:
    """Returns the status of a definition beside the `others` of its group; `before` is the status that it had.

    Names in conflict keep those that were accepted before, so that an established kind stays served.
    """
    spec = definition["spec"]
    conflicts = list(_conflicts(spec["names"], tuple(others)))
    accepted = before.get("acceptedNames") or {"plural": "", "kind": ""}
    if not conflicts:
        accepted = {name: value for name, value in spec["names"].items() if value}
    was_established = is_true({"status": before}, "Established")
    is_established = was_established or not conflicts
    rows = [
        ("NamesAccepted", not conflicts, *(conflicts[0] if conflicts else ("NoConflicts", "no conflicts found"))),
        (
            "Established",
            is_established,
            *(
                ("InitialNamesAccepted", "the initial names have been accepted")
                if is_established
                else ("NotAccepted", "not all names are accepted")
            ),
        ),
    ]
    if is_protected(spec["group"]):
        url = (definition["metadata"].get("annotations") or {}).get(APPROVED, "")
        rows.append(_approval(url))
    conditions = before.get("conditions") or []
    for row in rows:
        conditions = set_condition(conditions, _condition(*row), _now(definition))
    stored = list(before.get("storedVersions") or ())
    storage = next(each["name"] for each in spec["versions"] if each.get("storage"))
    return {
        "conditions": conditions,
        "acceptedNames": accepted,
        "storedVersions": stored if storage in stored else [*stored, storage],
    }


def with_termination(definition: Json, now: str) -> Json:
    """Returns a terminating definition that still has objects, with the condition for that."""
    status = definition.get("status") or {}
    row = _condition("Terminating", True, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
    return {**definition, "status": {**status, "conditions": set_condition(status.get("conditions") or (), row, now)}}


def _approval(url: str) -> tuple[str, bool, str, str]:
    name = "KubernetesAPIApprovalPolicyConformant"
    if url.startswith("unapproved"):
        return name, False, "UnapprovedAnnotation", f"not approved: {url}"
    return name, True, "ApprovedAnnotation", f"approved in {url}"


def _condition(kind: str, holds: bool, reason: str, message: str) -> Json:
    return {"message": message, "reason": reason, "status": "True" if holds else "False", "type": kind}


def _now(definition: Json) -> str:
    """Returns the time of the newest write; a definition without managers was just created."""
    metadata = definition["metadata"]
    times = (entry.get("time") or "" for entry in metadata.get("managedFields") or ())
    return max([metadata.get("creationTimestamp") or "", *times])


def _conflicts(names: Json, others: tuple[Kind, ...]) -> Iterator[tuple[str, str]]:
    """Yields reason and message for each name that another kind of the group has."""
    taken = {name for kind in others for name in (kind.plural, kind.singular, *kind.short_names)}
    kinds = {name for kind in others for name in (kind.kind, kind.list_kind)}
    singles = (("plural", "PluralConflict", taken), ("singular", "SingularConflict", taken))
    for field, reason, used in (*singles, ("kind", "KindConflict", kinds), ("listKind", "ListKindConflict", kinds)):
        if names[field] in used:
            yield reason, f'"{names[field]}" is already in use'
    if short := [name for name in names.get("shortNames") or () if name in taken]:
        listed = ", ".join(f'"{name}" is already in use' for name in short)
        yield "ShortNamesConflict", listed
