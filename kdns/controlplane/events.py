"""Events: what controllers tell about objects, as core/v1 Event objects that count repetitions and expire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cachetools import LRUCache

from kdns.cluster.objects import Key
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.kinds import EVENT, Json, Kind
from kdns.controlplane.metadata import timestamp

TTL_S: Final = 3600.0
"""How long an Event stays after its last write (kube-apiserver's --event-ttl)."""

_REMEMBERED: Final = 4096
_DELETED_AT_ONCE: Final = 100
_Said = tuple[str, str, str, str, str, str]


def event(notice: Notice, component: str, now_s: float) -> Json:
    """The first Event of a notice; its name is unique by the nanosecond, as client-go makes it."""
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
        "message": notice.message,
        "source": {"component": component},
        "reportingComponent": component,
        "type": notice.type,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def repeated(stored: Json, now_s: float) -> Json:
    """The Event once more."""
    return {**stored, "count": (stored.get("count") or 1) + 1, "lastTimestamp": timestamp(now_s)}


class Said:
    """Which Event tells what, so that a repeated notice counts it up; the oldest are forgotten."""

    def __init__(self) -> None:
        self._keys: LRUCache[_Said, Key] = LRUCache(_REMEMBERED)

    def key(self, notice: Notice, component: str) -> Key | None:
        """The Event that told the same of the same object."""
        return self._keys.get(_words(notice, component))

    def remember(self, notice: Notice, component: str, key: Key) -> None:
        """The Event that tells this from now on."""
        self._keys[_words(notice, component)] = key


def _words(notice: Notice, component: str) -> _Said:
    meta = notice.about["metadata"]
    uid = meta.get("uid") or f"{meta.get('namespace')}/{meta['name']}"
    return component, notice.kind.kind, uid, notice.type, notice.reason, notice.message


class EventExpiry:
    """Deletes Events an hour after their last write. A restart gives each another hour."""

    name = "event-expiry"
    follows = (EVENT,)
    settled: frozenset[Kind] = frozenset()

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        self._fresh: dict[Key, Json] = {}
        self._events: dict[Key, Json] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Note the write; when it happened is read at the next look."""
        _ = kind, revision
        self._due.pop(key, None)
        self._fresh.pop(key, None)
        self._events.pop(key, None)
        if obj is None:
            return ()
        self._fresh[key] = self._events[key] = obj
        return (("events",),)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """Delete what is due; `_due` is in order, since every write moves its Event to the end."""
        _ = subject, since_s
        self._due |= dict.fromkeys(self._fresh, now_s + TTL_S)
        self._fresh.clear()
        late: list[Action] = []
        for key, due_s in self._due.items():
            if due_s > now_s:
                return Outcome(late, again_s=due_s - now_s)
            if len(late) == _DELETED_AT_ONCE:
                return Outcome(late, again_s=0)
            late.append(Action("delete", EVENT, self._events[key]))
        return Outcome(late)

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """Nobody is told."""
        _ = subject, error
        return None
