"""The base of a controller, in controller-runtime's words: it observes changes, and reconciles one request at a time.

A reconciler does no I/O; its only state is its index. `io/controller_manager` runs reconcilers. It delivers every
change before the next reconcile, so a reconciler always sees its own writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import Json, Kind

Name: TypeAlias = tuple[str, ...]
"""The name of an object to reconcile, such as a namespace and name: ("default", "web")."""


class Change(NamedTuple):
    """A change of an object at a revision; `obj` is None after a deletion."""

    kind: Kind
    key: Key
    obj: Json | None
    revision: int


class Request(NamedTuple):
    """The name of an object to reconcile, and the time in seconds since the epoch."""

    name: Name
    now_s: float

    @property
    def key(self) -> Key:
        return self.name[0], self.name[1]


@dataclass(frozen=True, slots=True)
class Action:
    """One write. An update has the resourceVersion that it was computed from; deleting a missing object succeeds.

    `options` are the DeleteOptions of a deletion.
    """

    verb: Literal["create", "update", "delete"]
    kind: Kind
    obj: Json
    subresource: str = ""
    options: Json | None = None

    def creates(self, kind: Kind) -> bool:
        return self.verb == "create" and self.kind is kind


@dataclass(frozen=True, slots=True)
class Event:
    """An Event to record; an equal recorded Event gets a higher count instead."""

    kind: Kind
    about: Json
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Result:
    """Writes in order, and Events; `requeue_after_s` schedules another reconcile."""

    actions: Sequence[Action] = ()
    events: Sequence[Event] = ()
    requeue_after_s: float | None = None


def status_update(kind: Kind, obj: Json, status: Json) -> list[Action]:
    """No write if the status is unchanged."""
    if status == (obj.get("status") or {}):
        return []
    return [Action("update", kind, {**obj, "status": status}, "status")]


class Reconciler(ABC):
    """One control loop."""

    name: str
    """Kubernetes' name of the controller: the source component of its Events and the field manager of its writes."""

    watches: tuple[Kind, ...]
    """In the order in which the initial lists are delivered."""

    ignores_own_writes_of: frozenset[Kind] = frozenset()
    """Changes of these kinds by its own writes do not enqueue a request."""

    has_low_priority = False
    """Its requests follow those of other controllers, whose writes would enqueue them again."""

    @abstractmethod
    def observe(self, change: Change) -> Iterable[Name]:
        """Indexes the object; returns the names of the objects to reconcile."""

    @abstractmethod
    def reconcile(self, request: Request) -> Result:
        """The writes and Events for a request."""

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        """The Event of a refused write, if any; the manager retries in any case.

        Conflicts, and creations in a terminating namespace, are not reported here.
        """
        del request, action, error
        return None
