"""Strategies: how objects of a kind are defaulted, prepared, validated, selected, printed and deleted.

One is what kube-apiserver calls a strategy (pkg/registry/*/strategy.go, with the options of registry.Store).
Everything that differs by kind is an attribute; registry.py, the verbs and deletion read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.columns import Printer
from kdns.controlplane.kinds.scale import ScalePaths
from kdns.controlplane.kinds.service.allocation import ServiceAllocator
from kdns.controlplane.kinds.service.allocator import Transaction
from kdns.controlplane.storage.field_selectors import OBJECT_META, FieldLabels, fields
from kdns.controlplane.storage.object_meta import content, with_metadata_of
from kdns.controlplane.storage.watch import StoredObject

Rules: TypeAlias = Callable[[Json, Json | None], list[Cause]]
"""The violated rules of an object; the second argument is the stored one on update, None on create."""


def _unchanged(obj: Json) -> Json:
    return obj


def _update_unchanged(new: Json, _old: Json | None) -> Json:
    return new


def _status_update(new: Json, _old: Json) -> Json:
    return new


def with_metadata_of_old(*fields: str) -> Callable[[Json, Json], Json]:
    """Returns a `prepare_status` that keeps these fields of the stored metadata."""

    def kept(new: Json, old: Json) -> Json:
        return with_metadata_of(new, old, fields)

    return kept


def no_warnings(_obj: Json) -> Iterable[str]:
    return ()


def _no_grace_s(_obj: Json, _requested_s: int | None) -> int:
    return 0


class Allocate(Protocol):
    """Allocates the numbers of an object that replaces `old` (None: a new one), and sets it in the object."""

    def __call__(
        self, allocator: ServiceAllocator, new: Json, old: Json | None, txn: Transaction, /, *, dry_run: bool
    ) -> None:
        """Raises 422 for a value that is not available, 500 for a full range; `txn` reverts or commits."""
        ...


@dataclass(frozen=True, slots=True)
class OwnedObjects:
    """Objects of another kind that an object owns, one for each of its `names`.

    `source` is the value from which the names derive; it is cheap to compare. `make` returns an owned object, `owner`
    the key of its owner.
    """

    kind: Kind
    source: Callable[[Json], list[str]]
    names: Callable[[Json | None], set[str]]
    make: Callable[[Key, str], Json]
    owner: Callable[[Json], Key | None]


@dataclass(frozen=True, slots=True)
class Strategy:
    """The rules of one kind; the defaults of attributes suit a kind that is stored and printed.

    A write applies, in this order: `defaults`; on create `prepare_create`; `prepare`; `allocate`; on create
    `first_status`; `validate`.
    """

    validate: Rules
    printer: Printer
    defaults: Callable[[Json], Json] = _unchanged
    prepare_create: Callable[[Json], Json] = _unchanged
    prepare: Callable[[Json, Json | None], Json] = _update_unchanged
    allocate: Allocate | None = None
    """Allocates addresses and ports."""

    first_status: Callable[[Json], Json] | None = None
    prepare_status: Callable[[Json, Json], Json] = _status_update
    """The object after an update of its status, and the stored one → the object with allowed changes only."""

    validate_subresource: Mapping[str, Rules] = field(default_factory=dict)
    """Subresource → the rules of an update through it, beside those of metadata."""

    on_read: Callable[[Json, tuple[str, ...]], Json] | None = None
    """Fills in fields that older versions of kdns did not store; the second argument: the families of the cluster."""

    generation: Callable[[Json], Json] | None = content
    """The part of an object whose changes metadata.generation counts; None for a kind without generation."""

    field_labels: FieldLabels = OBJECT_META
    warnings: Callable[[Json], Iterable[str]] = no_warnings
    """Texts for the Warning header of a write."""

    deprecation: str = ""
    """The text of the Warning header of every request."""

    allow_create_on_update: bool = False
    allow_unconditional_update: bool = True
    """Whether a PUT need not say which resourceVersion it replaces."""

    return_deleted_object: bool = False
    """Whether DELETE answers with the object, not with a Status."""

    delete_collection: bool = True
    orphan_dependents: bool = False
    """Whether a DELETE without propagationPolicy orphans dependents."""

    deletion_warning: str = ""
    """The text of the Warning header of a DELETE without propagationPolicy."""

    scale: ScalePaths = field(default_factory=ScalePaths)
    """The fields of the subresource `scale`, if the kind has it."""

    protected: frozenset[str] = frozenset()
    """The names of objects that cannot be deleted."""

    grace_s: Callable[[Json, int | None], int] = _no_grace_s
    """Object and gracePeriodSeconds of the request → the seconds that a deleted object stays."""

    is_graceful: bool = False
    """Whether the last state of a deleted object says when it was deleted."""

    spec_finalizers: Callable[[Json], Sequence[str]] | None = None
    """spec.finalizers of an object that contains others (a Namespace): its content is deleted before it."""

    terminating: Callable[[Json], Json] = _unchanged
    """The object at the beginning of its deletion."""

    makes_objects: bool = False
    """Whether controllers make further objects for it: in a terminating Namespace it is deleted first."""

    owned_objects: OwnedObjects | None = None
    """Objects of another kind that are made and removed together with it."""

    stored: Callable[[ServiceAllocator, Json], None] | None = None
    deleted: Callable[[ServiceAllocator, Json], None] | None = None
    """The effects of a stored and a deleted object on the allocations."""

    restored: Callable[[ServiceAllocator, StoredObject], list[str]] | None = None
    """Restores the allocations of a stored object; returns unavailable ones."""


def status(value: Json) -> Callable[[Json], Json]:
    """Returns a `first_status` that is the same for every object."""
    return lambda _: value


NAMED: Final = fields("metadata.name")
COMMON: Final = fields("metadata.name", "metadata.namespace")
"""The fields that selectors may name for most kinds: cluster-scoped ones, and those in namespaces."""
