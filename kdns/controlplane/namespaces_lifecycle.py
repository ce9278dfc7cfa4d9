"""Namespaces decide what may be created in them (Kubernetes admission plug-in NamespaceLifecycle)."""

from __future__ import annotations

from kdns.controlplane.kinds import NAMESPACE, Json, Kind
from kdns.controlplane.status import StatusError, forbidden, not_found
from kdns.controlplane.watch import Stored

INITIAL = ("default", "kube-node-lease", "kube-public", "kube-system")
"""The namespaces every cluster starts with."""

IMMORTAL = frozenset({"default", "kube-public", "kube-system"})
"""Namespaces that cannot be deleted."""

NAME_LABEL = "kubernetes.io/metadata.name"


def begin(obj: Json) -> None:
    """What every new Namespace has: the label with its name, the finalizer of its content, phase Active."""
    labels = obj["metadata"].get("labels") or {}
    obj["metadata"]["labels"] = {**labels, NAME_LABEL: obj["metadata"]["name"]}
    spec = obj.get("spec") or {}
    finalizers = [*(spec.get("finalizers") or ())]
    obj["spec"] = {**spec, "finalizers": finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]}
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
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    error.details = {**(error.details or {}), "causes": [cause]}
    return error
