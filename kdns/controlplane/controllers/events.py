"""Events of controllers: core/v1 Event objects that count repetitions and expire."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from cachetools import LRUCache

from kdns.cluster.objects import Key
from kdns.controlplane.controllers.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.meta.kinds import EVENT, Json, Kind
from kdns.controlplane.storage.object_meta import timestamp

TTL_S: Final = 3600.0
"""How long an Event is kept after its last write (kube-apiserver's --event-ttl)."""

_SINGLE_MAX: Final = 9
"""Similar Events of one reconcile that are recorded one by one; client-go combines the rest too."""

_RECORDED_MAX: Final = 4096
_MESSAGE_CHARACTERS_MAX: Final = 1024  # as of events.k8s.io/v1, whose messages are its notes
_DELETED_AT_ONCE: Final = 100
_AggregateKey = tuple[str, str, str, str, str, str]


def new_event(notice: Notice, component: str, now_s: float) -> Json:
    """The first Event of a notice. The nanosecond in its name makes it unique, as with client-go."""
    meta = notice.about["metadata"]
    involved = {
        "apiVersion": notice.kind.api_version,
        "kind": notice.kind.kind,
        "name": meta["name"],
        "namespace": meta.get("namespace"),
        "resourceVersion": meta.get("resourceVersion"),
        "uid": meta.get("uid"),
    }
    now = timestamp(now_s)
    return {
        "metadata": {"name": f"{meta['name']}.{int(now_s * 1e9):x}", "namespace": meta.get("namespace") or "default"},
        "involvedObject": {name: value for name, value in involved.items() if value},
        "reason": notice.reason,
        "message": notice.message[:_MESSAGE_CHARACTERS_MAX],
        "source": {"component": component},
        "reportingComponent": component,
        "type": notice.type,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def repeated(stored: Json, now_s: float) -> Json:
    """The Event with its count incremented."""
    return {**stored, "count": (stored.get("count") or 1) + 1, "lastTimestamp": timestamp(now_s)}


def combined_notices(
    kind: Kind,
    about: Json,
    reason: str,
    messages: Sequence[str],
    *,
    more: bool = False,
    type: Literal["Normal", "Warning"] = "Normal",  # noqa: A002 - an Event's field
) -> list[Notice]:
    """Notices of one reason. Of more than nine, or with `more` to come, the last one stands for the rest."""
    shown: Iterable[str] = messages
    if more or len(messages) > _SINGLE_MAX:
        first = [] if more else messages[:_SINGLE_MAX]
        shown = [*first, *(f"(combined from similar events): {message}" for message in messages[-1:])]
    return [Notice(kind, about, type, reason, message) for message in shown]


class EventRecorder:
    """The Event of each notice, so that a repeated notice increments its count; bounded, least recently used first."""

    def __init__(self) -> None:
        self._keys: LRUCache[_AggregateKey, Key] = LRUCache(_RECORDED_MAX)

    def key(self, notice: Notice, component: str) -> Key | None:
        """The Event of the same notice about the same object."""
        return self._keys.get(_aggregate_key(notice, component))

    def remember(self, notice: Notice, component: str, key: Key) -> None:
        """Set the Event of this notice."""
        self._keys[_aggregate_key(notice, component)] = key


def _aggregate_key(notice: Notice, component: str) -> _AggregateKey:
    meta = notice.about["metadata"]
    uid = meta.get("uid") or f"{meta.get('namespace')}/{meta['name']}"
    return component, notice.kind.kind, uid, notice.type, notice.reason, notice.message[:_MESSAGE_CHARACTERS_MAX]


class EventExpiry:
    """Deletes Events an hour after their last write. A restart of the server begins that hour again."""

    name = "event-expiry"
    follows = (EVENT,)
    settled: frozenset[Kind] = frozenset()

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        self._written: dict[Key, Json] = {}
        self._events: dict[Key, Json] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Store the Event; its time is set by the next reconcile."""
        _ = kind, revision
        self._due.pop(key, None)
        self._written.pop(key, None)
        self._events.pop(key, None)
        if obj is None:
            return ()
        self._written[key] = self._events[key] = obj
        return (("events",),)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """Delete expired Events. `_due` is ordered by time: each write moves its Event to the end.

        A clock that was set back begins the hour of all Events again.
        """
        _ = subject, since_s
        self._due |= dict.fromkeys(self._written, now_s + TTL_S)
        self._written.clear()
        expired: list[Action] = []
        for key, due_s in self._due.items():
            if due_s > now_s + TTL_S:
                self._due = dict.fromkeys(self._due, now_s + TTL_S)
                return Outcome(expired, again_s=TTL_S)
            if due_s > now_s:
                return Outcome(expired, again_s=due_s - now_s)
            if len(expired) == _DELETED_AT_ONCE:
                return Outcome(expired, again_s=0)
            expired.append(Action("delete", EVENT, self._events[key]))
        return Outcome(expired)

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """No Event: one could not be written either."""
        _ = subject, error
        return None
