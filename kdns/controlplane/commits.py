"""What every write ends in: a commit in the store, with allocations settled and owners tracked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kdns.controlplane import listing
from kdns.controlplane.kinds import KINDS, Json, Kind
from kdns.controlplane.metadata import copied
from kdns.controlplane.owners import Owners
from kdns.controlplane.store import Store
from kdns.controlplane.watch import Filter, Stored


class Prepared(Protocol):
    """An object ready to be stored, and what settles or takes back what was allocated for it."""

    @property
    def obj(self) -> Json:
        """The object with defaults and allocations."""
        ...

    @property
    def commit(self) -> Callable[[], None]:
        """Call when the object is stored."""
        ...

    @property
    def revert(self) -> Callable[[], None]:
        """Call when it is not."""
        ...


class Strategies(Protocol):
    """The rules of each kind: defaults, allocation, validation."""

    def create(self, kind: Kind, obj: Json, *, dry_run: bool = False) -> Prepared:
        """The object as it is created."""
        ...

    def update(self, kind: Kind, old: Json, new: Json, *, subresource: str = "", dry_run: bool = False) -> Prepared:
        """The object as it replaces `old`."""
        ...

    def deleted(self, kind: Kind, obj: Json) -> None:
        """Release what a deleted object held."""
        ...

    def restore(self, kind: Kind, obj: Json) -> None:
        """Learn what a stored object holds, at start."""
        ...

    def on_read(self, kind: Kind, obj: Json) -> Json:
        """The object with fields that old versions lacked; the same object when it lacks none."""
        ...


class Commits:
    """Store, strategies and owners, kept in step. What the store already holds is learnt at once."""

    def __init__(self, store: Store, strategies: Strategies) -> None:
        self.store, self.strategies = store, strategies
        self.owners = Owners()
        for kind in KINDS:
            for version in self.store.page(kind, Filter()).items:
                strategies.restore(kind, version.obj)
                self.owners.track(None, version)

    def put(self, kind: Kind, obj: Json, replaces: Stored | None, prepared: Prepared | None = None) -> Stored:
        """Store a copy of `obj`; then what `prepared` allocated is its own."""
        obj = self.strategies.on_read(kind, obj)
        key = listing.key(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        version = self.store.put(kind, key, copied(obj), replaces)
        if prepared:
            prepared.commit()
        self.owners.track(replaces, version)
        return version

    def remove(self, version: Stored) -> Stored:
        """Delete for good and release what the object held; its last state."""
        last = self.store.delete(version)
        self.owners.track(version, None)
        self.strategies.deleted(version.kind, version.obj)
        return last
