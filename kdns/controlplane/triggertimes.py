"""When the change happened that endpoints follow (k8s.io/endpointslice/util, TriggerTimeTracker).

The annotation lets others measure how long a change takes to reach them. It says the earliest of what is new since the
last look: a Pod's change of readiness, or the Service's creation. What has no such time leaves no annotation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from kdns.cluster.objects import Key
from kdns.controlplane.endpointpods import ready_condition
from kdns.controlplane.kinds import Json


@dataclass(slots=True)
class TriggerTimes:
    """The times of one Service and its Pods."""

    _known: bool = False
    _service: datetime | None = None
    _pods: dict[Key, datetime] = field(default_factory=dict)
    _earliest: datetime | None = None

    def put(self, key: Key, pod: Json | None) -> None:
        """Note a Pod's state; None when it is none of the Service's."""
        changed = _time((ready_condition(pod) or {}).get("lastTransitionTime")) if pod else None
        before = self._pods.pop(key, None)
        if changed is None:
            return
        self._pods[key] = changed
        if before is None or changed > before:
            self._earliest = min(self._earliest or changed, changed)

    def take(self, service: Json) -> str:
        """RFC 3339 of what is new since the last call, or ""; of a Service not seen before, its creation."""
        created = _time(service["metadata"].get("creationTimestamp"))
        found = self._earliest
        if created and (self._service is None or created > self._service):
            found = min(found or created, created)
        if not self._known:
            found = created
        self._known, self._service, self._earliest = True, created, None
        return found.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if found else ""


def _time(text: str | None) -> datetime | None:
    try:
        time = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return time if time and time.tzinfo else None
