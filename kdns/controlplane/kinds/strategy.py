"""Strategies: the rules of writes of one kind, and its settings for lists, tables and deletions.

As in kube-apiserver (pkg/registry/*/strategy.go, with the options of registry.Store). Everything that differs by kind
is an attribute; the registry, the verbs and garbage collection read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.columns import Printer
from kdns.controlplane.kinds.conversion import ScalePaths
from kdns.controlplane.kinds.service.allocation import ServiceAllocator
from kdns.controlplane.storage.field_selectors import OBJECT_META, FieldLabels, fields
from kdns.controlplane.storage.object_meta import content, with_metadata_of
from kdns.controlplane.storage.store import StoredObject

Rules: TypeAlias = Callable[[Json, Json | None], list[Cause]]
"""The violated rules of an object; the second argument is the stored object on update, None on create."""

Prepare: TypeAlias = Callable[[Json, Json | None], Json]
"""The object as it is to be stored; the second argument is as in Rules."""


def _unchanged(obj: Json) -> Json:
    return obj


def _as_sent(new: Json, _old: Json | None) -> Json:
    return new


def on_create(*steps: Callable[[Json], Json]) -> Prepare:
    def prepare(new: Json, old: Json | None) -> Json:
        for step in () if old else steps:
            new = step(new)
        return new

    return prepare


def with_status(value: Json) -> Callable[[Json], Json]:
    return lambda obj: {**obj, "status": value}


def with_metadata_of_old(*names: str) -> Callable[[Json, Json], Json]:
    """A `prepare` of a subresource that keeps these fields of the stored metadata."""
    return lambda new, old: with_metadata_of(new, old, names)


def no_warnings(_obj: Json) -> Iterable[str]:
    return ()


def no_causes(_new: Json, _old: Json | None) -> list[Cause]:
    return []


@dataclass(frozen=True, slots=True)
class OwnedObjects:
    """Objects of another kind that an object owns, one for each of its `names`.

    The names derive from `source`, which is cheap to compare. `make` returns an owned object, `owner` the key of its
    owner.
    """

    kind: Kind
    source: Callable[[Json], list[str]]
    names: Callable[[Json], set[str]]
    make: Callable[[Key, str], Json]
    owner: Callable[[Json], Key | None]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Side effects of a kind's commits: numbers of Services, kinds of definitions."""

    follow: Callable[[ServiceAllocator, Json | None, Json | None], object]
    """Follows a commit: the object before, None for a new one, and the object now, None for a deleted one."""

    restore: Callable[[ServiceAllocator, StoredObject], list[str]] | None = None
    """Restores the allocations of a stored object at the start; returns unavailable ones."""

    allocate: Callable[..., None] | None = None
    """Sets the numbers of an object that replaces a stored one (ServiceAllocator.allocate)."""

    on_read: Callable[[Json, tuple[str, ...]], Json] | None = None
    """Fills in fields that older releases did not store; the second argument has the cluster's families."""

    owned: OwnedObjects | None = None
    """Objects of another kind that are created and removed together with it."""


@dataclass(frozen=True, slots=True)
class DeleteStrategy:
    """How objects of a kind are deleted."""

    collection: bool = True
    """DELETE of a collection is served."""

    protected: frozenset[str] = frozenset()
    """Names of objects that cannot be deleted."""

    returns_object: bool = False
    """DELETE answers with the object, not with a Status."""

    orphans: bool = False
    """A DELETE without propagationPolicy orphans dependents."""

    warning: str = ""
    """The Warning header of a DELETE without propagationPolicy."""

    grace_s: Callable[[Json, int | None], int] | None = None
    """Seconds that a deleted object stays, by object and the request's gracePeriodSeconds."""

    makes_objects: bool = False
    """Controllers create further objects for it, so in a terminating Namespace it is deleted first."""


@dataclass(frozen=True, slots=True)
class SubresourceStrategy:
    """The rules of updates through a subresource, beside those of metadata. `prepare` reverts what may not change."""

    validate: Rules = no_causes
    prepare: Callable[[Json, Json], Json] = _as_sent


@dataclass(frozen=True, slots=True)
class Strategy:
    """The rules of one kind; the defaults suit a kind that is stored and printed.

    A write applies, in this order: `defaults`, `prepare`, allocation, `validate`. Its response has the `warnings`.
    """

    validate: Rules
    printer: Printer
    defaults: Callable[[Json], Json] = _unchanged
    prepare: Prepare = _as_sent
    subresources: Mapping[str, SubresourceStrategy] = field(default_factory=dict)
    warnings: Callable[[Json], Iterable[str]] = no_warnings
    """Warning headers of a write."""

    allow_create_on_update: bool = False
    allow_unconditional_update: bool = True
    """A PUT may omit the resourceVersion that it replaces."""

    generation: Callable[[Json], Json] | None = content
    """The part of an object whose changes metadata.generation counts; None for a kind without generation."""

    field_labels: FieldLabels = OBJECT_META
    scale: ScalePaths = field(default_factory=ScalePaths)
    """The fields of the subresource `scale`, if the kind has it."""

    delete: DeleteStrategy = DeleteStrategy()
    hooks: Hooks | None = None


NAMED: Final = fields("metadata.name")
COMMON: Final = fields("metadata.name", "metadata.namespace")
"""Selectable fields of most namespaced kinds; `NAMED` are those of cluster-scoped ones."""
