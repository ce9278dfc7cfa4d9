"""The kinds of the API of `kdns up`, from its catalogue."""

from __future__ import annotations

from collections.abc import Iterator

from kdns.controlplane.meta.kinds import Kind
from kdns.controlplane.resources.catalogue import built_in
from kdns.controlplane.schema.schema import KUBERNETES_VERSION


def page() -> str:
    """Returns the page of all kinds."""
    return "\n".join(
        (
            "# Kinds of the API",
            "",
            f"The API of [kdns up](../up.md#kinds) is that of Kubernetes {KUBERNETES_VERSION.removeprefix('v')}.",
            "It serves these kinds, and those of CustomResourceDefinitions.",
            "",
            "| kind | apiVersion | resource | short names | subresources | notes |",
            "|---|---|---|---|---|---|",
            *_rows(),
            "",
        )
    )


def _rows() -> Iterator[str]:
    for kind in sorted(built_in(), key=lambda each: (each.group, each.kind, each.version)):
        short, subresources = ", ".join(kind.short_names), ", ".join(kind.subresources)
        scope = "" if kind.namespaced else "of the cluster"
        note = ", ".join(filter(None, (scope, _treatment(kind))))
        yield f"| {kind.kind} | `{kind.api_version}` | `{kind.plural}` | {short} | {subresources} | {note} |"


def _treatment(kind: Kind) -> str:
    if kind.stored_as:
        return f"stored as `{kind.stored_as.api_version}`"
    if kind.is_review:
        return "answered, not stored"
    return "stored; nothing acts on it" if kind.is_inert else ""
