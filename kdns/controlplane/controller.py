"""What a controller is: it learns of changes, and says what should be written for one subject at a time.

Controllers are pure but for the index that they keep. `kdns.aio.controllers` runs them: it feeds them every event
before it asks again, so a controller sees its own writes and needs to expect none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from kdns.cluster.objects import Key
from kdns.controlplane.kinds import Json, Kind

Subject: TypeAlias = tuple[str, ...]
"""What a controller looks after, in its own words: ("default", "web") or ("Deployment", "default", "web")."""


@dataclass(frozen=True, slots=True)
class Action:
    """One write. An update carries the resourceVersion it was made from; deleting what is gone is no failure.

    `options` are the DeleteOptions of a deletion.
    """

    verb: Literal["create", "update", "delete"]
    kind: Kind
    obj: Json
    subresource: str = ""
    options: Json | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that people should read with `kubectl describe`: it becomes an Event, or counts one up."""

    kind: Kind
    about: Json
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The writes, in order, and what to tell; `again_s` asks to be called again after so many seconds."""

    actions: Sequence[Action] = ()
    notices: Sequence[Notice] = ()
    again_s: float | None = None


class Controller(Protocol):
    """One loop of the control plane.

    `name` is the component of its events and the manager of the fields it writes. Events of its own writes of a kind
    in `settled` need no second look.
    """

    @property
    def name(self) -> str:
        """Kubernetes' name of the controller, such as endpoint-controller."""
        ...

    @property
    def follows(self) -> tuple[Kind, ...]:
        """The kinds it learns of, in the order in which they are learnt at start."""
        ...

    @property
    def settled(self) -> frozenset[Kind]:
        """Kinds whose own writes need no second look."""
        ...

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Take note of an object's new state (None: deleted at `revision`); the subjects to look at."""
        ...

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """What is to be done for the subject. `since_s` is when the first change that led here was seen."""
        ...

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """What to tell of a write that was refused; the runner tries again either way."""
        ...
