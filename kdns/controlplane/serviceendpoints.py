"""The controllers of a Service's endpoints, as one: Endpoints, EndpointSlices, mirrors of hand-written Endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from kdns.cluster.objects import Key
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.kinds import ENDPOINT_SLICE, ENDPOINTS, NODE, POD, SERVICE, Json, Kind
from kdns.controlplane.reconcile import reconcile
from kdns.controlplane.tracking import Tracked


class ServiceEndpoints:
    """Subjects are Services by namespace and name, also such as only Endpoints or slices speak of."""

    name = "endpointslice-controller"
    follows = (NODE, SERVICE, ENDPOINTS, ENDPOINT_SLICE, POD)
    settled = frozenset({ENDPOINTS, ENDPOINT_SLICE})

    def __init__(self) -> None:
        self._tracked = Tracked()
        self._gone: dict[Key, int] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Note the object; the Services that it concerns."""
        if kind == SERVICE:
            self._gone.pop(key, None)
            if obj is None:
                self._gone[key] = revision
        return self._tracked.apply(kind, key, obj)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """What the Service lacks; Endpoints go with the Service of their name unless they were written after it."""
        _ = now_s
        namespace, name = subject
        key = (namespace, name)
        gone = self._gone.pop(key, 0)
        existing = self._tracked.endpoints.get(key)
        if existing and int(existing["metadata"]["resourceVersion"]) < gone:
            return Outcome((Action("delete", ENDPOINTS, existing),), again_s=0)
        trigger = datetime.fromtimestamp(since_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return Outcome(reconcile(self._tracked, key, trigger))

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """Nobody is told: the log is."""
        _ = subject, error
        return None
