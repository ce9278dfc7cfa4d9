"""Annotations and labels that several rooms know."""

from __future__ import annotations

import re
from typing import Final

from kdns.controlplane.apimachinery.kinds import Json

_NUMBER: Final = re.compile(r"[0-9]{1,19}")
"""Clients may send text of any length, and Python refuses to parse a number of thousands of digits."""
_INT64_MAX: Final = 2**63 - 1

ZONE: Final = "topology.kubernetes.io/zone"
"""The label of a Node's zone."""

MANIFEST: Final = "kdns/manifest"
"""The path of the manifest file that defines an object."""

LAST_APPLIED: Final = "kdns/last-applied-configuration"
"""The manifest as it was last applied: the original of a three-way merge."""

MANIFEST_ANNOTATIONS: Final = frozenset({MANIFEST, LAST_APPLIED})

KUBECTL_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""Written by `kubectl apply` without --server-side."""


def annotated_number(obj: Json, annotation: str) -> int | None:
    text = (obj["metadata"].get("annotations") or {}).get(annotation) or ""
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is None or number <= _INT64_MAX else None
