"""The kinds of the API of `kdns up`, from its catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from kdns.controlplane.apimachinery.kinds import Kind
from kdns.controlplane.kinds.served import ServedKinds
from kdns.controlplane.schema.schema import KUBERNETES_VERSION


def page() -> str:
    """Returns the page of all kinds."""
    release = KUBERNETES_VERSION.removeprefix("v")
    return "\n".join(
        (
            "# Kinds of the API",
            "",
            f"The API of [kdns up](../up.md#kinds) is that of Kubernetes {release}.",
            "It serves these kinds, and those of CustomResourceDefinitions.",
            "",
            *_sections(),
        )
    )


def _sections() -> Iterator[str]:
    kinds = sorted(ServedKinds(), key=lambda each: (each.group, each.version, each.kind))
    for api_version, members in groupby(kinds, lambda each: each.api_version):
        yield from (f"## {api_version}", "", "| kind | short names | subresources | notes |", "|---|---|---|---|")
        for kind in members:
            short, subresources = ", ".join(kind.short_names), ", ".join(kind.subresources)
            yield f"| {kind.kind} | {short} | {subresources} | {', '.join(_notes(kind))} |"
        yield ""


def _notes(kind: Kind) -> Iterator[str]:
    if not kind.namespaced:
        yield "in no namespace"
    if kind.stored_as:
        yield f"stored as {kind.stored_as.api_version}"
    elif kind.is_review:
        yield "answered, not stored"
    elif kind.is_inert:
        yield "nothing acts on it"
