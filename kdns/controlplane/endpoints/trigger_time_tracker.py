"""The trigger time of Endpoints and EndpointSlices (k8s.io/endpointslice/util, TriggerTimeTracker).

The annotation endpoints.kubernetes.io/last-change-trigger-time lets clients measure the latency of a change. It is the
earliest time since the last reconcile of a Pod's change of readiness and of the Service's creation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.conditions import condition_of
from kdns.controlplane.apimachinery.kinds import Json


@dataclass(slots=True)
class TriggerTimeTracker:
    """The trigger times of one Service."""

    _is_initialized: bool = False
    _service: datetime | None = None
    _pods: dict[Key, datetime] = field(default_factory=dict)
    _earliest: datetime | None = None

    def put(self, key: Key, pod: Json | None) -> None:
        """Sets a Pod; None for one that the Service does not select."""
        changed = _time((condition_of(pod, "Ready") or {}).get("lastTransitionTime")) if pod else None
        before = self._pods.pop(key, None)
        if changed is None:
            return
        self._pods[key] = changed
        if before is None or changed > before:
            self._earliest = min(self._earliest or changed, changed)

    def take(self, service: Json) -> str:
        """Returns the trigger time since the last call (RFC 3339), or "".

        The first call returns the Service's creation.
        """
        created = _time(service["metadata"].get("creationTimestamp"))
        trigger = self._earliest
        if created and (self._service is None or created > self._service):
            trigger = min(trigger or created, created)
        if not self._is_initialized:
            trigger = created
        self._is_initialized, self._service, self._earliest = True, created, None
        return trigger.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if trigger else ""


def _time(text: str | None) -> datetime | None:
    try:
        time = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return time if time and time.tzinfo else None
