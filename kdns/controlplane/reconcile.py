"""What one Service needs written now: its Endpoints, its EndpointSlices, or the mirror of hand-written Endpoints.

Differs: when a Service loses its selector or becomes an ExternalName, kube-controller-manager leaves its slices where
they are, and they grow stale beside the mirrored ones; here they are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane import endpoints, endpointslices, mirroring
from kdns.controlplane.controller import Action
from kdns.controlplane.endpoints import desired_endpoints, follows_selector
from kdns.controlplane.endpointslices import MANAGED_BY, SlicePlan, plan_slices
from kdns.controlplane.kinds import ENDPOINT_SLICE, ENDPOINTS, Json
from kdns.controlplane.mirroring import is_mirrored, plan_mirror
from kdns.controlplane.tracking import Tracked


def reconcile(tracked: Tracked, key: Key, trigger: str) -> list[Action]:
    """The writes for the Service `key`; none when all is as it should be. `trigger` is RFC 3339."""
    service, mine = tracked.services.get(key), tracked.slices_of(key)
    ours = [each for each in mine if _manager(each) == endpointslices.CONTROLLER]
    mirrored = [each for each in mine if _manager(each) == mirroring.CONTROLLER]
    existing = tracked.endpoints.get(key)
    actions: list[Action] = []
    if service and follows_selector(service):
        pods = tracked.pods_of(service)
        wanted = desired_endpoints(service, pods, existing, trigger)
        if wanted and not service["metadata"].get("deletionTimestamp"):
            actions.append(Action("update" if existing else "create", ENDPOINTS, wanted))
        actions += _slice_actions(plan_slices(service, pods, tracked.nodes, ours, trigger))
        return actions + _deletions(mirrored)
    if service is None and existing and _is_managed(existing):
        actions.append(Action("delete", ENDPOINTS, existing))
        existing = None
    actions += _deletions(ours)
    if existing and is_mirrored(existing, service):
        return actions + _slice_actions(plan_mirror(existing, mirrored, trigger))
    return actions + _deletions(mirrored)


def _manager(each: Json) -> str | None:
    manager: str | None = (each["metadata"].get("labels") or {}).get(MANAGED_BY)
    return manager


def _is_managed(existing: Json) -> bool:
    labels = existing["metadata"].get("labels") or {}
    return bool(endpoints.MANAGED_BY.items() <= labels.items())


def _deletions(slices: Iterable[Json]) -> list[Action]:
    return [Action("delete", ENDPOINT_SLICE, each) for each in slices]


def _slice_actions(plan: SlicePlan) -> list[Action]:
    """Creations first, so that no endpoint is missing between two writes."""
    made = [Action("create", ENDPOINT_SLICE, each) for each in plan.create]
    return [*made, *(Action("update", ENDPOINT_SLICE, each) for each in plan.update), *_deletions(plan.delete)]
