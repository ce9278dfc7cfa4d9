"""Namespaces: whether objects may be created in them (admission plug-in NamespaceLifecycle), and their termination."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from kdns.controlplane.apimachinery.conditions import set_condition
from kdns.controlplane.apimachinery.errors import StatusError, forbidden, not_found
from kdns.controlplane.apimachinery.kinds import NAMESPACE, POD, Json, Kind
from kdns.controlplane.kinds.core import CONTENT_FINALIZER, namespace_finalizers
from kdns.controlplane.storage.object_meta import is_terminating
from kdns.controlplane.storage.store import Filter, Store, StoredObject

_TERMINATING = "NamespaceTerminating"
_LISTED_MAX = 100


def refusal(namespace: StoredObject | None, kind: Kind, namespace_name: str, metadata: Json) -> StatusError:
    """Returns the error of a creation: 404 for a namespace that does not exist, 403 for a terminating one."""
    if namespace is None:
        return not_found(NAMESPACE, namespace_name)
    why = f"unable to create new content in namespace {namespace_name} because it is being terminated"
    name = metadata.get("name") or metadata.get("generateName") or ""
    error = forbidden(kind, name, why)
    cause = {
        "reason": _TERMINATING,
        "message": f"namespace {namespace_name} is being terminated",
        "field": "metadata.namespace",
    }
    error.details = {**(error.details or {}), "causes": [cause]}
    return error


def is_namespace_terminating(error: Exception) -> bool:
    """Returns whether a write was refused because its namespace is being deleted, so that a retry is useless."""
    causes = ((error.details or {}).get("causes") or ()) if isinstance(error, StatusError) else ()
    return any(cause.get("reason") == _TERMINATING for cause in causes)


@dataclass(slots=True)
class NamespaceContent:
    """Remaining objects and finalizers of a namespace; for each kind, the finalizers of the first objects.

    `is_to_delete`: some of them are not terminating yet.
    """

    objects: dict[Kind, int] = field(default_factory=dict)
    finalizers: Counter[str] = field(default_factory=Counter)
    is_to_delete: bool = False


def content(store: Store, kinds: Iterable[Kind], namespace: str) -> NamespaceContent:
    """Returns the content of a namespace: its Pods; after their deletion, everything else of the namespaced `kinds`.

    Differs: while Pods remain, the conditions of kube-controller-manager report no remaining content.
    """
    found = NamespaceContent()
    for kind in (POD, *kinds):
        page = store.page(kind, Filter(namespace), limit=_LISTED_MAX)
        if page.items:
            found.objects[kind] = len(page.items) + (page.remaining or 0)
        for version in page.items:
            found.finalizers.update(version.obj["metadata"].get("finalizers") or ())
            found.is_to_delete = found.is_to_delete or not is_terminating(version.obj)
        if kind is POD and page.items:
            break
    return found


def terminating(namespace: Json, left: NamespaceContent, now: str) -> Json:
    """Returns a terminating Namespace with the conditions of its content.

    The content's finalizer is removed once it is empty.
    """
    spec, status = namespace.get("spec") or {}, namespace.get("status") or {}
    held = [each for each in namespace_finalizers(namespace) if each != CONTENT_FINALIZER or left.objects]
    rows = status.get("conditions") or ()
    for kind, (is_true, reason, message) in _conditions(left).items():
        row = {"type": kind, "status": "True" if is_true else "False", "reason": reason, "message": message}
        rows = set_condition(rows, row, now)
    return {
        **namespace,
        "spec": {**spec, "finalizers": held} if held else {key: spec[key] for key in spec if key != "finalizers"},
        "status": {**status, "phase": "Terminating", "conditions": rows},
    }


def _conditions(left: NamespaceContent) -> dict[str, tuple[bool, str, str]]:
    """Returns (status, reason, message) by type, as the namespace controller writes them."""
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
