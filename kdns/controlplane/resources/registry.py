"""Applies the strategies to the objects of one cluster, and holds its allocations of addresses and ports.

`create` and `update` hold allocations until the caller commits or reverts; if they raise, nothing is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Final

from kdns.controlplane.meta import formats
from kdns.controlplane.meta.cluster_config import ClusterConfig
from kdns.controlplane.meta.errors import Cause, invalid
from kdns.controlplane.meta.kinds import Json, Kind
from kdns.controlplane.resources.catalogue import Catalogue, built_in
from kdns.controlplane.resources.service.allocation import ServiceAllocator
from kdns.controlplane.resources.service.allocator import AllocatorMetrics, Choose, Transaction
from kdns.controlplane.resources.validation import validate_meta, validate_meta_update
from kdns.controlplane.storage.watch import StoredObject

_TRUSTS: Final = ContextVar("trusts", default=False)
"""Whether validation has no effect; another thread that prepares an object meanwhile has its own value."""


@dataclass(frozen=True, slots=True)
class PreparedObject:
    """An object ready to be stored. Call `commit` in the owner's turn, or `revert`; a second call does nothing."""

    obj: Json
    commit: Callable[[], None]
    revert: Callable[[], None]


class Registry:
    """Prepares and validates objects of all kinds; one per cluster.

    `choose(n)` returns a number from 0 to n - 1: the search for a free address or port starts there. `lost`
    names allocations of stored objects that were not available at start. `kinds` is the catalogue of the cluster, that
    of the built-in kinds by default.
    """

    def __init__(
        self,
        config: ClusterConfig,
        choose: Choose,
        metrics: AllocatorMetrics | None = None,
        kinds: Catalogue | None = None,
    ) -> None:
        self.config, self.kinds = config, kinds or built_in()
        self.services = ServiceAllocator(config, choose, metrics or AllocatorMetrics())
        self.lost: list[str] = []
        self.in_turn: Callable[[Callable[[], None]], None] = _at_once
        """Runs work on allocations in the thread that owns them; the rest may run in any."""

    def create(self, kind: Kind, obj: Json, *, dry_run: bool = False) -> PreparedObject:
        """Prepares a new object; raises 422, or 500 for a full range."""
        strategy, txn = self.kinds[kind], Transaction()
        new = strategy.prepare(strategy.prepare_create(strategy.defaults(obj)), None)
        try:
            self._allocate(kind, new, None, txn, dry_run=dry_run)
            if strategy.first_status:
                new = {**new, "status": strategy.first_status(new)}
            self._check(kind, new, strategy.validate(new, None))
        except BaseException:
            self.in_turn(txn.revert)
            raise
        return self._prepared(new, txn, dry_run=dry_run)

    def update(
        self, kind: Kind, old: Json, new: Json, *, subresource: str = "", dry_run: bool = False
    ) -> PreparedObject:
        """Prepares the replacement of `old`; with a subresource, no more than metadata and status is validated.

        As in kube-apiserver, metadata are validated for all kinds alike and then with the kind: causes occur twice.
        """
        strategy, txn = self.kinds[kind], Transaction()
        new = strategy.defaults(new)
        if subresource:
            causes = _common(kind, old, new) + validate_meta_update(old, new)
            if rules := strategy.validate_subresource.get(subresource):
                causes += rules(new, old)
            self._check(kind, new, causes)
            return self._prepared(new, txn, dry_run=dry_run)
        new = strategy.prepare(new, old)
        try:
            self._allocate(kind, new, old, txn, dry_run=dry_run)
            self._check(kind, new, _common(kind, old, new) + strategy.validate(new, old))
        except BaseException:
            self.in_turn(txn.revert)
            raise
        return self._prepared(new, txn, dry_run=dry_run)

    def _allocate(self, kind: Kind, new: Json, old: Json | None, txn: Transaction, *, dry_run: bool) -> None:
        if allocate := self.kinds[kind].allocate:
            self.in_turn(lambda: allocate(self.services, new, old, txn, dry_run=dry_run))

    def _prepared(self, obj: Json, txn: Transaction, *, dry_run: bool) -> PreparedObject:
        prepared = PreparedObject(obj, txn.commit, partial(self.in_turn, txn.revert))
        if dry_run:
            prepared.revert()
        return prepared

    def stored(self, kind: Kind, obj: Json) -> None:
        """Registers a stored version: IPAddresses reserve addresses, ServiceCIDRs set ranges."""
        self.kinds[kind].stored(self.services, obj)

    def deleted(self, kind: Kind, obj: Json) -> None:
        """Releases the allocations of a deleted object."""
        self.kinds[kind].deleted(self.services, obj)

    def restore(self, version: StoredObject) -> None:
        """Restores the allocations of a stored object at the start."""
        if restored := self.kinds[version.kind].restored:
            self.lost += [f"{'/'.join(version.key)}: {what}" for what in restored(self.services, version)]

    def on_read(self, kind: Kind, obj: Json) -> Json:
        """Returns the object with the fields that older versions of kdns did not store."""
        fill = self.kinds[kind].on_read
        return fill(obj, self.config.families) if fill else obj

    @contextmanager
    def without_validation(self) -> Iterator[None]:
        """Disables validation inside: for the server's own objects, whose endpoints may be on loopback."""
        token = _TRUSTS.set(True)
        try:
            yield
        finally:
            _TRUSTS.reset(token)

    def _check(self, kind: Kind, obj: Json, causes: list[Cause]) -> None:
        if causes and not _TRUSTS.get():
            raise invalid(kind, obj["metadata"].get("name") or "", causes)


def _at_once(work: Callable[[], None]) -> None:
    work()


def _common(kind: Kind, old: Json, new: Json) -> list[Cause]:
    """Checks the rules of updates that all kinds share."""
    marks = validate_meta(new, formats.path_segment, namespaced=kind.namespaced, any_finalizer=True)
    return marks + validate_meta_update(old, new)
