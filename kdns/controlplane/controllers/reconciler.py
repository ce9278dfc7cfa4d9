"""The interface of a controller: it observes changes, and reconciles one request at a time into writes.

A controller does no input and output; its only state is its index. `io/controller_manager` runs controllers. It passes
on every event before the next reconcile, so a controller always sees its own writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from kdns.cluster.objects import Key
from kdns.controlplane.meta.kinds import Json, Kind

Request: TypeAlias = tuple[str, ...]
"""The object to reconcile, such as a namespace and name: ("default", "web")."""


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
    """Returns the update of the status subresource; none if the status is unchanged."""
    if status == (obj.get("status") or {}):
        return []
    return [Action("update", kind, {**obj, "status": status}, "status")]


class Controller(Protocol):
    """One control loop.

    `name` is the source component of its Events and the field manager of its writes. The watch events of its own
    writes of a kind in `ignores_own_writes_of` do not enqueue a request.
    """

    @property
    def name(self) -> str:
        """Kubernetes' name of the controller, such as endpoint-controller."""
        ...

    @property
    def watches(self) -> tuple[Kind, ...]:
        """The kinds that it watches, in the order in which their initial lists are passed on."""
        ...

    @property
    def ignores_own_writes_of(self) -> frozenset[Kind]:
        """The kinds whose own writes do not enqueue a request."""
        ...

    def observe(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Request]:
        """Indexes an object, None for one that was deleted at `revision`; returns the requests to reconcile."""
        ...

    def reconcile(self, request: Request, since_s: float, now_s: float) -> Result:
        """Returns the writes and Events for a request. `since_s` is the time of the event that enqueued it."""
        ...

    def failed(self, request: Request, error: Exception) -> Event | None:
        """Returns the Event of a failed write; the manager retries in any case."""
        ...
