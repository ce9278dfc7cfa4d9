"""The EndpointSlice controller: EndpointSlices of Services with a selector (pkg/controller/endpointslice)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kdns.cluster.objects import Key
from kdns.controlplane.controllers.controller import Action, Event, Request, Result
from kdns.controlplane.controllers.endpoints import topology_hints
from kdns.controlplane.controllers.endpoints.desired_endpoints import DesiredEndpoints, SliceOptions
from kdns.controlplane.controllers.endpoints.pod_endpoints import has_selector
from kdns.controlplane.controllers.endpoints.service_index import PodViews, ServiceIndex
from kdns.controlplane.controllers.endpoints.slice_reconciler import CONTROLLER, SlicePlan, managed_by, plan_slices
from kdns.controlplane.meta.errors import StatusError
from kdns.controlplane.meta.kinds import ENDPOINT_SLICE, NODE, POD, SERVICE, Json, Kind
from kdns.controlplane.resources.service.spec import spec_of
from kdns.controlplane.storage.object_meta import is_terminating


class EndpointSliceController:
    """EndpointSlices of Services with a selector. Requests are Services by namespace and name, existing or not.

    Differs: when a Service loses its selector or becomes an ExternalName, kube-controller-manager keeps its slices,
    which grow stale beside the mirrored ones; here they are deleted.
    """

    name = "endpointslice-controller"
    watches = (NODE, SERVICE, ENDPOINT_SLICE, POD)
    ignores_own_writes_of = frozenset({ENDPOINT_SLICE})

    def __init__(self, index: ServiceIndex, options: SliceOptions | None = None) -> None:
        self._index, self._options = index, options or SliceOptions()
        self._endpoints = PodViews(
            index,
            lambda service: (spec_of(service), topology_hints.is_auto(service)),
            lambda service: DesiredEndpoints(service, index.nodes, self._options),
        )
        self._shares: topology_hints.Shares | None = None
        self._allocated: dict[Key, dict[str, Mapping[str, int]]] = {}

    def observe(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Request]:
        """Indexes the object; the Services that it affects."""
        services = self._endpoints.touch(self._index.observe(kind, key, obj, revision))
        if kind == NODE:
            self._shares = None
            if self._allocated:
                services |= self._overloaded()
        return services

    def reconcile(self, request: Request, since_s: float, now_s: float) -> Result:
        """Writes the slices. Events name skipped Pods, and report the beginning and end of topology hints."""
        _ = since_s, now_s
        key = request[0], request[1]
        service = self._index.services.get(key)
        mine = [each for each in self._index.slices_of(key) if managed_by(each) == CONTROLLER]
        if service is None or not has_selector(service):
            self._endpoints.drop(key)
            self._allocated.pop(key, None)
            return Result([Action("delete", ENDPOINT_SLICE, each) for each in mine])
        endpoints, trigger = self._endpoints.view(key, service)
        mine = [each for each in mine if not is_terminating(each)]
        shares = self._zone_shares(endpoints)
        plan = plan_slices(service, endpoints, mine, trigger, options=self._options, shares=shares)
        events = list(self._hint_events(key, service, endpoints.families, plan))
        if skipped := list(endpoints.skipped.values()):
            events.append(_failed_slices(service, f"[{', '.join(skipped)}]" if len(skipped) > 1 else skipped[0]))
        return Result(plan.actions, events)

    def failed(self, request: Request, error: Exception) -> Event | None:
        """Returns FailedToUpdateEndpointSlices for the Service."""
        key = request[0], request[1]
        service = self._index.services.get(key)
        if service is None:
            return None
        name = (error.details or {}).get("name", "") if isinstance(error, StatusError) else ""
        stored = (key[0], name) in self._index.slices
        what = f"update {name} EndpointSlice" if stored else "create EndpointSlice"
        return _failed_slices(service, f"failed to {what} for Service {'/'.join(request)}: {error}")

    def _zone_shares(self, endpoints: DesiredEndpoints) -> topology_hints.Shares:
        if not endpoints.auto:
            return {}
        if self._shares is None:
            self._shares = topology_hints.zone_shares(self._index.nodes.values())
        return self._shares

    def _overloaded(self) -> set[Key]:
        """Returns the Services whose hints overload a zone, given the present Nodes."""
        self._shares = shares = topology_hints.zone_shares(self._index.nodes.values())
        rows = self._allocated.items()
        return {key for key, by in rows if any(topology_hints.is_overloaded(each, shares) for each in by.values())}

    def _hint_events(self, key: Key, service: Json, families: Iterable[str], plan: SlicePlan) -> Iterable[Event]:
        """Yields the Events of k8s.io/endpointslice when the hints of a Service begin or end."""
        for family in families:
            had = key in self._allocated
            if plan.allocated.get(family):
                self._allocated.setdefault(key, {})[family] = plan.allocated[family]
                if not had:
                    message = f"Topology Aware Hints has been enabled, addressType: {family}"
                    yield Event(SERVICE, service, "Normal", "TopologyAwareHintsEnabled", message)
                continue
            why = plan.problems.get(family) or ("Topology Aware Hints has been disabled" if had else "")
            self._allocated.pop(key, None)
            if why:
                message = f"{why}, addressType: {family}"
                yield Event(SERVICE, service, "Warning", "TopologyAwareHintsDisabled", message)


def _failed_slices(service: Json, why: str) -> Event:
    where = f"{service['metadata'].get('namespace', '')}/{service['metadata']['name']}"
    message = f"Error updating Endpoint Slices for Service {where}: {why}"
    return Event(SERVICE, service, "Warning", "FailedToUpdateEndpointSlices", message)
