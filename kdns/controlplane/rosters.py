"""Views of each Service's Pods that are kept, so that a change costs about what changed and not what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from kdns.cluster.objects import Key
from kdns.controlplane.kinds import Json
from kdns.controlplane.tracking import Concern, Tracked
from kdns.controlplane.triggertimes import TriggerTimes


class View(Protocol):
    """What a controller makes of a Service's Pods."""

    def put(self, key: Key, pod: Json | None) -> None:
        """Note a Pod's state; None when it is none of the Service's."""
        ...


V = TypeVar("V", bound=View)


@dataclass(slots=True)
class _Roster(Generic[V]):
    shape: object
    view: V
    times: TriggerTimes = field(default_factory=TriggerTimes)


class Rosters(Generic[V]):
    """One controller's views by Service.

    `shape(service)` is what of a Service a view depends on; `fresh(service)` is a view without Pods.
    """

    def __init__(self, tracked: Tracked, shape: Callable[[Json], object], fresh: Callable[[Json], V]) -> None:
        self._tracked, self._shape, self._fresh = tracked, shape, fresh
        self._rosters: dict[Key, _Roster[V]] = {}
        self._touched: dict[Key, dict[Key, None]] = {}

    def touch(self, concerns: Iterable[Concern]) -> set[Key]:
        """Note which Pods have changed; the Services to look at."""
        services = set()
        for service, pod in concerns:
            services.add(service)
            if pod:
                self._touched.setdefault(service, {})[pod] = None
        return services

    def look(self, key: Key, service: Json) -> tuple[V, str]:
        """The view of a Service's Pods as they are, and the time of what is new (triggertimes)."""
        roster, shape = self._rosters.get(key), self._shape(service)
        touched: Iterable[Key] = self._touched.pop(key, {})
        if roster is None or roster.shape != shape:
            times = roster.times if roster else TriggerTimes()
            roster = self._rosters[key] = _Roster(shape, self._fresh(service), times)
            touched = (*touched, *self._tracked.pods_of(service))
        for each in touched:
            pod = self._tracked.selected(service, each)
            roster.view.put(each, pod)
            roster.times.put(each, pod)
        return roster.view, roster.times.take(service)

    def drop(self, key: Key) -> None:
        """Forget a Service."""
        self._rosters.pop(key, None)
        self._touched.pop(key, None)
