"""Namespaces: what may be created in them (admission plug-in NamespaceLifecycle), and how they go."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kdns.controlplane.kinds import KINDS, NAMESPACE, Json, Kind
from kdns.controlplane.status import StatusError, forbidden, not_found
from kdns.controlplane.store import Store
from kdns.controlplane.watch import Filter, Stored

IMMORTAL = frozenset({"default", "kube-public", "kube-system"})
"""Namespaces that cannot be deleted."""

INSIDE = tuple(kind for kind in KINDS if kind.namespaced)
"""The kinds of what is in namespaces."""

NAME_LABEL = "kubernetes.io/metadata.name"
OURS = "kubernetes"
"""What stands in a Namespace's spec.finalizers until its content is gone; others are for their owners to take away."""

_TERMINATING = "NamespaceTerminating"
_LISTED_MAX = 100


def begin(obj: Json) -> None:
    """What every new Namespace has: the label with its name, the finalizer of its content, phase Active."""
    labels = obj["metadata"].get("labels") or {}
    obj["metadata"]["labels"] = {**labels, NAME_LABEL: obj["metadata"].get("name", "")}
    spec = obj.get("spec") or {}
    found = [*(spec.get("finalizers") or ())]
    obj["spec"] = {**spec, "finalizers": found if OURS in found else [*found, OURS]}
    obj["status"] = {"phase": "Active"}


def accepts(namespace: Stored | None, kind: Kind, namespace_name: str, name: str) -> None:
    """404 for a namespace that does not exist, 403 for one that is going."""
    if namespace is None:
        raise not_found(NAMESPACE, namespace_name)
    if namespace.obj["metadata"].get("deletionTimestamp"):
        raise _terminating(kind, namespace_name, name)


def _terminating(kind: Kind, namespace: str, name: str) -> StatusError:
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    error = forbidden(kind, name, why)
    cause = {
        "reason": _TERMINATING,
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    error.details = {**(error.details or {}), "causes": [cause]}
    return error


def is_terminating(error: Exception) -> bool:
    """Whether a write was refused because the namespace is going: then nobody need try it again."""
    causes = ((error.details or {}).get("causes") or ()) if isinstance(error, StatusError) else ()
    return any(cause.get("reason") == _TERMINATING for cause in causes)


def finalizers(namespace: Json) -> list[str]:
    """spec.finalizers."""
    return list((namespace.get("spec") or {}).get("finalizers") or ())


@dataclass(slots=True)
class Content:
    """What is left in a namespace. Large counts are exact too, but then nobody looked for finalizers."""

    objects: dict[Kind, int] = field(default_factory=dict)
    finalizers: Counter[str] = field(default_factory=Counter)


def content(store: Store, namespace: str) -> Content:
    """What is left in a namespace."""
    found = Content()
    for kind in INSIDE:
        page = store.page(kind, Filter(namespace), limit=_LISTED_MAX)
        if page.items:
            found.objects[kind] = len(page.items) + (page.remaining or 0)
        for version in page.items:
            found.finalizers.update(version.obj["metadata"].get("finalizers") or ())
    return found


def terminating(namespace: Json, left: Content, now: str) -> Json:
    """A going Namespace as it is with this content: its conditions, and without our finalizer once it is empty."""
    spec, status = namespace.get("spec") or {}, namespace.get("status") or {}
    held = [each for each in finalizers(namespace) if each != OURS or left.objects]
    before = {row.get("type"): row for row in status.get("conditions") or ()}
    rows = []
    for kind, (is_true, reason, message) in _conditions(left).items():
        row = {"type": kind, "status": "True" if is_true else "False", "reason": reason, "message": message}
        known = before.pop(kind, {})
        since = known.get("lastTransitionTime") if known.get("status") == row["status"] else now
        rows.append({**row, "lastTransitionTime": since})
    rows = [{key: row[key] for key in _ORDER} for row in rows]
    return {
        **namespace,
        "spec": {**spec, "finalizers": held} if held else {key: spec[key] for key in spec if key != "finalizers"},
        "status": {**status, "phase": "Terminating", "conditions": [*rows, *before.values()]},
    }


_ORDER = ("type", "status", "lastTransitionTime", "reason", "message")


def _conditions(left: Content) -> dict[str, tuple[bool, str, str]]:
    """type → (status, reason, message), in the namespace controller's words."""
    some = ", ".join(
        sorted(f"{kind.plural}.{kind.group} has {count} resource instances" for kind, count in left.objects.items())
    )
    held = ", ".join(sorted(f"{name} in {count} resource instances" for name, count in left.finalizers.items()))
    return {
        "NamespaceDeletionDiscoveryFailure": (
            False,
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        "NamespaceDeletionGroupVersionParsingFailure": (
            False,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            False,
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": (
            (True, "SomeResourcesRemain", f"Some resources are remaining: {some}")
            if some
            else (False, "ContentRemoved", "All content successfully removed")
        ),
        "NamespaceFinalizersRemaining": (
            (True, "SomeFinalizersRemain", f"Some content in the namespace has finalizers remaining: {held}")
            if held
            else (False, "ContentHasNoFinalizers", "All content-preserving finalizers finished")
        ),
    }
