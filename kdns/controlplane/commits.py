"""What every write ends in: a commit in the store, with allocations settled and owners tracked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kdns.cluster.objects import Key
from kdns.controlplane import listing
from kdns.controlplane.ipaddresses import ip_address_of, names_of, service_of
from kdns.controlplane.kinds import IP_ADDRESS, KINDS, SERVICE, Json, Kind
from kdns.controlplane.managed import copied
from kdns.controlplane.owners import Owners
from kdns.controlplane.services import addresses_of
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

    def stored(self, kind: Kind, obj: Json) -> None:
        """Learn of a version that was stored."""
        ...

    @property
    def restored(self) -> frozenset[Kind]:
        """The kinds whose objects hold something."""
        ...

    def restore(self, version: Stored) -> None:
        """Learn what a stored object of such a kind holds, at start."""
        ...

    def on_read(self, kind: Kind, obj: Json) -> Json:
        """The object with fields that old versions lacked; the same object when it lacks none."""
        ...


@dataclass(frozen=True, slots=True)
class Interrupted:
    """What was on its way out at start: objects that go, and those whose owners may have gone without them."""

    going: tuple[Stored, ...]
    ownerless: tuple[tuple[Kind, Key], ...]


class Commits:
    """Store, strategies and owners, kept in step. What the store already holds is learnt at once.

    The IPAddress objects of a Service come and go in the same step as its addresses; `begin` gives them metadata.
    The journal writes what one step commits as one transaction, so after a crash there are both or neither.
    """

    def __init__(self, store: Store, strategies: Strategies, begin: Callable[[Kind, Json], None]) -> None:
        self.store, self.strategies, self._begin = store, strategies, begin
        self.owners = Owners()
        going, uids = [], set()
        for kind in KINDS:
            is_restored = kind in strategies.restored
            for version in self.store.page(kind, Filter()).items:
                if is_restored:
                    strategies.restore(version)
                marks = self.owners.learn(version)
                uids.add(marks.uid)
                if marks.deletion_timestamp:
                    going.append(version)
        self.interrupted = Interrupted(tuple(going), tuple(self.owners.ownerless(uids)))
        if not store.page(IP_ADDRESS, Filter(), limit=1).items:
            for version in store.page(SERVICE, Filter()).items:  # as older versions stored them
                self._accompany(version.key, None, version.obj)

    def put(self, kind: Kind, obj: Json, replaces: Stored | None, prepared: Prepared | None = None) -> Stored:
        """Store a copy of `obj`; then what `prepared` allocated is its own."""
        obj = self.strategies.on_read(kind, obj)
        key = listing.key(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        version = self.store.put(kind, key, copied(obj), replaces)
        if prepared:
            prepared.commit()
        self.owners.track(replaces, version)
        self.strategies.stored(kind, version.obj)
        if kind == SERVICE:
            self._accompany(key, replaces.obj if replaces else None, version.obj)
        return version

    def remove(self, version: Stored) -> Stored:
        """Delete for good and release what the object held; its last state."""
        last = self.store.delete(version)
        self.owners.track(version, None)
        self.strategies.deleted(version.kind, version.obj)
        if version.kind == SERVICE:
            self._accompany(version.key, version.obj, None)
        return last

    def _accompany(self, service: Key, old: Json | None, new: Json | None) -> None:
        """Make IPAddress objects for the addresses that the Service gained, and remove its own for those it lost.

        One that somebody else holds by a finalizer, or that is another's, stays; the repair loop looks after it.
        """
        if old and new and addresses_of(old) == addresses_of(new):
            return
        before, now = names_of(old), names_of(new)
        for name in sorted(before - now):
            version = self.store.get(IP_ADDRESS, ("", name))
            if version and service_of(version.obj) == service and not version.obj["metadata"].get("finalizers"):
                self.remove(version)
        for name in sorted(now - before):
            if self.store.get(IP_ADDRESS, ("", name)) is None:
                obj = ip_address_of(service, name)
                self._begin(IP_ADDRESS, obj)
                self.store.put(IP_ADDRESS, ("", name), obj, None)
                self.strategies.stored(IP_ADDRESS, obj)
