"""Events of controllers: core/v1 Event objects that count repetitions and expire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.kinds import EVENT, Json
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request, Result
from kdns.controlplane.storage.object_meta import timestamp

TTL_S: Final = 3600.0
"""An Event lives this long after its last write (kube-apiserver's --event-ttl)."""

_MESSAGE_CHARACTERS_MAX: Final = 1024  # as of events.k8s.io/v1, whose messages are its notes
_DELETED_AT_ONCE: Final = 100
AggregateKey: TypeAlias = tuple[str, str, str, str, str, str]


def new_event(event: Event, component: str, now_s: float) -> Json:
    """The nanosecond in its name makes it unique, as with client-go."""
    meta = event.about["metadata"]
    involved = {
        "apiVersion": event.kind.api_version,
        "kind": event.kind.kind,
        "name": meta["name"],
        "namespace": meta.get("namespace"),
        "resourceVersion": meta.get("resourceVersion"),
        "uid": meta.get("uid"),
    }
    now = timestamp(now_s)
    return {
        "metadata": {"name": f"{meta['name']}.{int(now_s * 1e9):x}", "namespace": meta.get("namespace") or "default"},
        "involvedObject": {name: value for name, value in involved.items() if value},
        "reason": event.reason,
        "message": event.message[:_MESSAGE_CHARACTERS_MAX],
        "source": {"component": component},
        "reportingComponent": component,
        "type": event.type,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def repeated(stored: Json, now_s: float) -> Json:
    return {**stored, "count": (stored.get("count") or 1) + 1, "lastTimestamp": timestamp(now_s)}


def aggregate_key(event: Event, component: str) -> AggregateKey:
    """Equal for repetitions of a notice about one object, which count up its Event."""
    meta = event.about["metadata"]
    uid = meta.get("uid") or f"{meta.get('namespace')}/{meta['name']}"
    return component, event.kind.kind, uid, event.type, event.reason, event.message[:_MESSAGE_CHARACTERS_MAX]


class EventExpiry(Reconciler):
    """Deletes Events an hour after their last write. A restart of the server restarts the hour."""

    name = "event-expiry"
    watches = (EVENT,)

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        self._written: dict[Key, Json] = {}
        self._events: dict[Key, Json] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        _, key, obj, _ = change
        self._due.pop(key, None)
        self._written.pop(key, None)
        self._events.pop(key, None)
        if obj is None:
            return ()
        self._written[key] = self._events[key] = obj
        return (("events",),)

    def reconcile(self, request: Request) -> Result:
        """Deletes expired Events. `_due` is ordered by time: each write moves its Event to the end.

        After the clock was set back, the hour of all Events starts again.
        """
        now_s = request.now_s
        self._due |= dict.fromkeys(self._written, now_s + TTL_S)
        self._written.clear()
        expired: list[Action] = []
        for key, due_s in self._due.items():
            if due_s > now_s + TTL_S:
                self._due = dict.fromkeys(self._due, now_s + TTL_S)
                return Result(expired, requeue_after_s=TTL_S)
            if due_s > now_s:
                return Result(expired, requeue_after_s=due_s - now_s)
            if len(expired) == _DELETED_AT_ONCE:
                return Result(expired, requeue_after_s=0)
            expired.append(Action("delete", EVENT, self._events[key]))
        return Result(expired)
