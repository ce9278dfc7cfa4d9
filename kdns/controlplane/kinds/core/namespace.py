"""The defaults of Namespaces, and their states at creation and deletion."""

from __future__ import annotations

from typing import Final

from kdns.controlplane.apimachinery.kinds import Json

CONTENT_FINALIZER: Final = "kubernetes"
"""Stands in spec.finalizers until the content of the Namespace is deleted; others are removed by their owners."""

_NAME_LABEL: Final = "kubernetes.io/metadata.name"


def default_namespace(obj: Json) -> Json:
    """Returns its name as a label, a spec, and the phase."""
    meta, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    labels = {**(meta.get("labels") or {}), _NAME_LABEL: meta.get("name", "")}
    status = obj.get("status") or {}
    return {
        **obj,
        "metadata": {**meta, "labels": labels},
        "spec": spec,
        "status": {**status, "phase": status.get("phase") or "Active"},
    }


def new_namespace(obj: Json) -> Json:
    """Returns a new Namespace: Active, with the finalizer of its content."""
    spec, finalizers = obj["spec"], namespace_finalizers(obj)
    listed = finalizers if CONTENT_FINALIZER in finalizers else [*finalizers, CONTENT_FINALIZER]
    return {**obj, "spec": {**spec, "finalizers": listed}, "status": {"phase": "Active"}}


def namespace_finalizers(obj: Json) -> list[str]:
    return list((obj.get("spec") or {}).get("finalizers") or ())


def terminating_namespace(obj: Json) -> Json:
    """Returns a Namespace whose deletion begins."""
    return {**obj, "status": {**(obj.get("status") or {}), "phase": "Terminating"}}
