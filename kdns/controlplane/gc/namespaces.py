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
    """The error of a create: 404 for a namespace that does not exist, 403 for a terminating one."""
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
    """A write was refused because its namespace is being deleted, so a retry is useless."""
    causes = ((error.details or {}).get("causes") or ()) if isinstance(error, StatusError) else ()
    return any(cause.get("reason") == _TERMINATING for cause in causes)


@dataclass(slots=True)
class NamespaceContent:
    """The remaining objects of a namespace by kind, and the finalizers of the first objects of each kind.

    `is_to_delete`: some of these are not terminating yet.
    """

    objects: dict[Kind, int] = field(default_factory=dict)
    finalizers: Counter[str] = field(default_factory=Counter)
    is_to_delete: bool = False


def content(store: Store, kinds: Iterable[Kind], namespace: str) -> NamespaceContent:
    """The Pods of a namespace; once they are gone, everything else of the namespaced `kinds`.

    Differs: while Pods remain, the conditions of kube-controller-manager report no remaining content.
    """
    remaining = NamespaceContent()
    for kind in (POD, *kinds):
        page = store.page(kind, Filter(namespace), limit=_LISTED_MAX)
        if page.items:
            remaining.objects[kind] = len(page.items) + (page.remaining or 0)
        for version in page.items:
            remaining.finalizers.update(version.obj["metadata"].get("finalizers") or ())
            remaining.is_to_delete = remaining.is_to_delete or not is_terminating(version.obj)
        if kind is POD and page.items:
            break
    return remaining


def terminating(namespace: Json, remaining: NamespaceContent, now: str) -> Json:
    """Sets the conditions that report the content; the content's finalizer is removed once it is empty."""
    spec, status = namespace.get("spec") or {}, namespace.get("status") or {}
    finalizers = [name for name in namespace_finalizers(namespace) if name != CONTENT_FINALIZER or remaining.objects]
    rows = status.get("conditions") or ()
    for kind, (is_true, reason, message) in _conditions(remaining).items():
        row = {"type": kind, "status": "True" if is_true else "False", "reason": reason, "message": message}
        rows = set_condition(rows, row, now)
    return {
        **namespace,
        "spec": {**spec, "finalizers": finalizers} if finalizers else {k: spec[k] for k in spec if k != "finalizers"},
        "status": {**status, "phase": "Terminating", "conditions": rows},
    }


def _conditions(remaining: NamespaceContent) -> dict[str, tuple[bool, str, str]]:
    """(status, reason, message) by type, as the namespace controller writes them."""
    objects = ", ".join(
        sorted(
            f"{kind.plural}.{kind.group} has {count} resource instances" for kind, count in remaining.objects.items()
        )
    )
    finalizers = ", ".join(
        sorted(f"{name} in {count} resource instances" for name, count in remaining.finalizers.items())
    )
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
            (True, "SomeResourcesRemain", f"Some resources are remaining: {objects}")
            if objects
            else (False, "ContentRemoved", "All content successfully removed")
        ),
        "NamespaceFinalizersRemaining": (
            (True, "SomeFinalizersRemain", f"Some content in the namespace has finalizers remaining: {finalizers}")
            if finalizers
            else (False, "ContentHasNoFinalizers", "All content-preserving finalizers finished")
        ),
    }
