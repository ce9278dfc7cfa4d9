"""Annotations that several rooms know."""

from __future__ import annotations

from typing import Final

MANIFEST: Final = "kdns/manifest"
"""The path of the manifest file that defines an object."""

LAST_APPLIED: Final = "kdns/last-applied-configuration"
"""The manifest as it was applied last, as JSON: the original of a three-way merge."""

MANIFEST_ANNOTATIONS: Final = frozenset({MANIFEST, LAST_APPLIED})

KUBECTL_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""The same of `kubectl apply` without --server-side."""
