"""DeleteOptions: what shall become of an object's dependents (meta/v1, and kube-apiserver's defaults by kind)."""

from __future__ import annotations

from typing import Final

from kdns.controlplane.causes import invalid_value, unsupported
from kdns.controlplane.kinds import JOB, REPLICATION_CONTROLLER, Json, Kind
from kdns.controlplane.status import invalid
from kdns.controlplane.watch import Stored

FOREGROUND: Final = "foregroundDeletion"
"""The finalizer of an object that waits for its dependents to go first."""

ORPHANING: Final = "orphan"
"""The finalizer of an object whose dependents stay."""

ORPHAN: Final = "Orphan"
_POLICIES: Final = (ORPHAN, "Background", "Foreground")
_ORPHANED_UNASKED: Final = frozenset({JOB, REPLICATION_CONTROLLER})
"""Kinds whose Pods stay unless the request says otherwise, as they did before there was garbage collection."""

_OPTIONS: Final = Kind("meta.k8s.io", "v1", "DeleteOptions", "deleteoptions")


def propagation(version: Stored, options: Json) -> str:
    """Orphan, Background or Foreground; 422 for anything else."""
    policy, orphans = options.get("propagationPolicy"), options.get("orphanDependents")
    if policy is not None and orphans is not None:
        both = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid(_OPTIONS, "", [invalid_value("propagationPolicy", policy, both)])
    if policy is not None and policy not in _POLICIES:
        raise invalid(_OPTIONS, "", [unsupported("propagationPolicy", policy, (*_POLICIES, "nil"))])
    if policy is not None:
        return str(policy)
    if orphans is not None:
        return ORPHAN if orphans else "Background"
    finalizers = version.obj["metadata"].get("finalizers") or ()
    if ORPHANING in finalizers:
        return ORPHAN
    if FOREGROUND in finalizers:
        return "Foreground"
    return ORPHAN if version.kind in _ORPHANED_UNASKED else "Background"
