"""The EndpointSlice controller: EndpointSlices of Services with a selector (pkg/controller/endpointslice)."""

from __future__ import annotations

from collections.abc import Iterable

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, NODE, POD, SERVICE, Json
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request, Result
from kdns.controlplane.endpoints.desired_endpoints import DesiredEndpoints
from kdns.controlplane.endpoints.pod_endpoints import has_selector
from kdns.controlplane.endpoints.service_index import PodViews, ServiceIndex
from kdns.controlplane.endpoints.slice_reconciler import CONTROLLER, MAX_ENDPOINTS, managed_by, plan_slices
from kdns.controlplane.kinds.service.spec import spec_of
from kdns.controlplane.storage.object_meta import is_terminating


class EndpointSliceController(Reconciler):
    """EndpointSlices of Services with a selector. Requests are Services by namespace and name, existing or not.

    Differs: when a Service loses its selector or becomes an ExternalName, kube-controller-manager keeps its slices,
    which grow stale beside the mirrored ones; here they are deleted.
    """

    name = "endpointslice-controller"
    watches = (NODE, SERVICE, ENDPOINT_SLICE, POD)
    has_low_priority = True
    ignores_own_writes_of = frozenset({ENDPOINT_SLICE})

    def __init__(self, index: ServiceIndex, max_endpoints: int = MAX_ENDPOINTS) -> None:
        self._index, self._max_endpoints = index, max_endpoints
        self._endpoints = PodViews(index, spec_of, lambda service: DesiredEndpoints(service, index.nodes))

    def observe(self, change: Change) -> Iterable[Name]:
        """Indexes the object; the Services that it affects."""
        return self._endpoints.touch(self._index.observe(change))

    def reconcile(self, request: Request) -> Result:
        """Writes the slices. Events name skipped Pods."""
        key = request.key
        service = self._index.services.get(key)
        mine = [each for each in self._index.slices_of(key) if managed_by(each) == CONTROLLER]
        if service is None or not has_selector(service):
            self._endpoints.drop(key)
            return Result([Action("delete", ENDPOINT_SLICE, each) for each in mine])
        endpoints, trigger = self._endpoints.view(key, service)
        mine = [each for each in mine if not is_terminating(each)]
        plan = plan_slices(service, endpoints, mine, trigger, self._max_endpoints)
        events = []
        if skipped := list(endpoints.skipped.values()):
            events.append(_failed_slices(service, f"[{', '.join(skipped)}]" if len(skipped) > 1 else skipped[0]))
        return Result(plan.actions, events)

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        service = self._index.services.get(request.key)
        if service is None:
            return None
        name = "" if action.verb == "create" else f" {action.obj['metadata']['name']}"
        what = f"{action.verb}{name} EndpointSlice"
        return _failed_slices(service, f"failed to {what} for Service {'/'.join(request.name)}: {error}")


def _failed_slices(service: Json, why: str) -> Event:
    where = f"{service['metadata'].get('namespace', '')}/{service['metadata']['name']}"
    message = f"Error updating Endpoint Slices for Service {where}: {why}"
    return Event(SERVICE, service, "Warning", "FailedToUpdateEndpointSlices", message)
