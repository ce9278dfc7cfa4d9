"""The roles of files that a kustomization names. kdns builds none: it applies files that are manifests unchanged.

A file that a kustomization names in other fields than resources is a patch or part of an object, not a manifest.
Overlays of one base are alternatives: an object that two of them define is not defined twice.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kdns.controlplane.manifests.manifest import Key, Manifest, source_text
from kdns.errors import ManifestError

GROUP: Final = "kustomize.config.k8s.io"
NAMES: Final = ("kustomization.yaml", "kustomization.yml")
"""Files that may lack apiVersion and kind."""
_RESOURCES: Final = ("resources", "bases", "components")
_HEAD: Final = frozenset({"apiVersion", "kind", "metadata", *_RESOURCES})


@dataclass(frozen=True, slots=True)
class Kustomization:
    """One kustomization; `resources` are files and folders, `others` are texts that may be paths."""

    path: str
    line: int
    resources: tuple[str, ...]
    others: tuple[str, ...]
    has_effects: bool

    @property
    def folder(self) -> str:
        return posixpath.dirname(posixpath.normpath(self.path)) or "."

    @property
    def error(self) -> ManifestError:
        """Reports that more than resources was skipped. It names the command to use instead, if there is one."""
        reason = "skipped: kdns builds no kustomizations, and leaves patches out"
        if posixpath.basename(self.path) in NAMES:  # kustomize reads no other file
            reason = f"{reason}; `kubectl kustomize {source_text(self.folder)}` writes what it builds"
        return ManifestError(self.path, self.line, "kind", reason)


def kustomization(path: str, line: int, value: object) -> Kustomization | None:
    """A kustomization or component; None for any other document."""
    if not isinstance(value, dict):
        return None
    group = str(value.get("apiVersion") or "").partition("/")[0]
    if group != GROUP and (posixpath.basename(path) not in NAMES or value.get("kind")):
        return None
    folder = posixpath.dirname(path)
    resources, others = (
        tuple(posixpath.normpath(posixpath.join(folder, text)) for text in _texts(part))
        for part in (
            [value.get(name) for name in _RESOURCES],
            [part for name, part in value.items() if name not in _HEAD],
        )
    )
    return Kustomization(path, line, resources, others, has_effects=not value.keys() <= _HEAD)


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value.rpartition("=")[2] if "\n" not in value else ""  # generators have `KEY=FILE`
        case list():
            for item in value:
                yield from _texts(item)
        case dict():
            yield from _texts(list(value.values()))


def left_out(paths: Iterable[str], kustomizations: Sequence[Kustomization]) -> frozenset[str]:
    """Paths that kustomizations name, but never as a resource."""
    named = {path for kustomization in kustomizations for path in kustomization.others}
    named -= {path for kustomization in kustomizations for path in kustomization.resources}
    return frozenset(path for path in paths if posixpath.normpath(path) in named)


def clusters(manifests: Iterable[Manifest], kustomizations: Sequence[Kustomization]) -> list[list[Manifest]]:
    """Sets of manifests to check together: the first of each object, then the alternatives in its place."""
    roots = _roots(kustomizations)
    layers: list[dict[Key, list[Manifest]]] = []
    for manifest in manifests:
        mine = roots.get(posixpath.normpath(manifest.path), frozenset())
        for layer in layers:
            theirs = roots.get(posixpath.normpath(layer[manifest.key][0].path)) if manifest.key in layer else None
            if not (mine and theirs and mine.isdisjoint(theirs)):
                break
        else:
            layers.append(layer := {})
        layer.setdefault(manifest.key, []).append(manifest)
    first = layers[0] if layers else {}
    return [[manifest for same in {**first, **layer}.values() for manifest in same] for layer in layers]


def _roots(kustomizations: Sequence[Kustomization]) -> Mapping[str, frozenset[str]]:
    """For each resource file, the folders that build it and are not resources of another folder."""
    folders = {kustomization.folder: kustomization for kustomization in kustomizations}
    included = {path for kustomization in kustomizations for path in kustomization.resources}
    roots: dict[str, set[str]] = {}
    for root in folders.keys() - included:
        reached = [root]
        for path in reached:  # which grows meanwhile
            if path in folders:
                reached += (resource for resource in folders[path].resources if resource not in reached)
            else:
                roots.setdefault(path, set()).add(root)
    return {path: frozenset(folder_roots) for path, folder_roots in roots.items()}
