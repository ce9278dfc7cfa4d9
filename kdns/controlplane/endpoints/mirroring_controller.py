"""The EndpointSlice mirroring controller: EndpointSlices of Endpoints that no controller manages.

Clients then only need to read EndpointSlices (kube-controller-manager: pkg/controller/endpointslicemirroring).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kdns.controlplane.apimachinery.annotations import KUBECTL_LAST_APPLIED
from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, SERVICE, Json
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request, Result
from kdns.controlplane.endpoints.desired_endpoints import PortKey, identity, port_key
from kdns.controlplane.endpoints.endpointslice_controller import SlicePlan, new_slice, reuse
from kdns.controlplane.endpoints.pod_endpoints import MANAGED_BY, SERVICE_NAME, TRIGGER_TIME
from kdns.controlplane.endpoints.service_index import ServiceIndex
from kdns.controlplane.gc.owners import is_owned
from kdns.controlplane.kinds.service.spec import spec_of
from kdns.controlplane.storage.object_meta import is_terminating
from kdns.net import parse_address

CONTROLLER = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"
PER_SUBSET = 1000

_Address: TypeAlias = tuple[str, str]
"""The IP of an address and the uid of its target."""


class MirroringController(Reconciler):
    """Mirrors Endpoints into EndpointSlices. Requests are Endpoints by namespace and name, existing or not."""

    name = "endpointslicemirroring-controller"
    watches = (SERVICE, ENDPOINTS, ENDPOINT_SLICE)
    has_low_priority = True
    ignores_own_writes_of = frozenset({ENDPOINT_SLICE})

    def __init__(self, index: ServiceIndex) -> None:
        self._index = index

    def observe(self, change: Change) -> Iterable[Name]:
        return {service for service, _ in self._index.observe(change)}

    def reconcile(self, request: Request) -> Result:
        key = request.key
        mine = self._index.slices_of(key, CONTROLLER)
        endpoints = self._index.endpoints.get(key)
        if endpoints is None or not is_mirrored(endpoints, self._index.services.get(key)):
            return Result([Action("delete", ENDPOINT_SLICE, mirror) for mirror in mine])
        mirrored = mirrored_endpoints(endpoints)
        events = [Event(ENDPOINTS, endpoints, "Warning", *event) for event in unmirrored(mirrored)]
        return Result(plan_mirror(endpoints, mirrored, mine).actions, events)


def is_mirrored(endpoints: Json, service: Json | None) -> bool:
    """Their Service has no selector, and they are neither opted out nor a leader lock."""
    meta = endpoints["metadata"]
    opted_out = (meta.get("labels") or {}).get(SKIP) == "true" or LEADER in (meta.get("annotations") or {})
    return service is not None and spec_of(service).get("selector") is None and not opted_out


def plan_mirror(endpoints: Json, mirrored: MirroredEndpoints, existing: Sequence[Json]) -> SlicePlan:
    """The writes after which the slices hold `mirrored`: one slice per family and set of ports."""
    plan = SlicePlan()
    labels, annotations = _labels(endpoints), _annotations(endpoints)
    spare = [mirror for mirror in existing if is_owned(mirror, ENDPOINTS, endpoints)]
    plan.delete.extend(mirror for mirror in existing if mirror not in spare)
    for (family, key), group in mirrored.groups.items():
        same = next((mirror for mirror in spare if _key(mirror) == (family, key)), None)
        if not group.endpoints:
            continue
        rows = list(group.endpoints.values())
        if same is None:
            plan.create.append(new_slice(ENDPOINTS, endpoints, labels, family, group.ports, rows))
            continue
        spare.remove(same)
        meta = same["metadata"]
        stored = {identity(endpoint): endpoint for endpoint in same.get("endpoints") or []}
        unchanged = stored == group.endpoints and len(stored) == len(same.get("endpoints") or [])
        if not unchanged or (meta.get("labels") or {}) != labels or (meta.get("annotations") or {}) != annotations:
            plan.update.append(
                {**same, "endpoints": rows, "ports": group.ports, "metadata": {**meta, "labels": labels}}
            )
    reused = reuse(plan.create, spare)
    plan.update.extend(reused.values())
    plan.delete.extend(mirror for mirror in spare if mirror["metadata"]["name"] not in reused)
    if is_terminating(endpoints):
        plan.create.clear()
    for written in (*plan.create, *plan.update):
        written["metadata"]["annotations"] = annotations
    return plan


@dataclass(slots=True)
class _Group:
    ports: list[Json]
    endpoints: dict[str, Json] = field(default_factory=dict)


@dataclass(slots=True)
class MirroredEndpoints:
    """Endpoints of slices by family and ports; `invalid` and `skipped` count addresses that are not mirrored."""

    groups: dict[tuple[str, PortKey], _Group] = field(default_factory=dict)
    invalid: int = 0
    skipped: int = 0


def mirrored_endpoints(endpoints: Json) -> MirroredEndpoints:
    """At most 1,000 endpoints per repacked subset, ready ones first."""
    mirrored = MirroredEndpoints()
    for ports, addresses in repacked(endpoints.get("subsets") or []):
        added = 0
        for address, ready in addresses:
            if added == PER_SUBSET:
                break
            ip = parse_address(address.get("ip") or "")
            if ip is None:
                mirrored.invalid += 1
                continue
            added += 1
            fields = {key: address[key] for key in ("hostname", "nodeName", "targetRef") if address.get(key)}
            endpoint = {"addresses": [str(ip)], "conditions": {"ready": ready}, **fields}
            group = mirrored.groups.setdefault((f"IPv{ip.version}", port_key(ports)), _Group(ports))
            group.endpoints[identity(endpoint)] = endpoint
        mirrored.skipped += len(addresses) - added
    return mirrored


def repacked(subsets: Iterable[Json]) -> Iterator[tuple[list[Json], list[tuple[Json, bool]]]]:
    """The subsets in canonical form: sets of ports, each with its addresses and whether they are ready.

    Ports of the same addresses in the same states are one subset. An address that is both ready and not ready at a port
    is not ready there; its hostname and node are those of its first occurrence (pkg/api/v1/endpoints: RepackSubsets).
    """
    first: dict[_Address, Json] = {}
    states: dict[PortKey, dict[_Address, bool]] = {}
    ports: dict[PortKey, list[Json]] = {}
    for subset in subsets:
        offered = [[{"name": "", "protocol": "TCP", **port}] for port in subset.get("ports") or []]
        for port in offered or [[]]:
            ports.setdefault(port_key(port), port)
            state = states.setdefault(port_key(port), {})
            for field_name, ready in (("addresses", True), ("notReadyAddresses", False)):
                for address in subset.get(field_name) or []:
                    at = address.get("ip") or "", (address.get("targetRef") or {}).get("uid") or ""
                    first.setdefault(at, address)
                    state[at] = ready and state.get(at, True)
    packed: dict[frozenset[tuple[_Address, bool]], list[Json]] = {}
    for key, state in states.items():
        packed.setdefault(frozenset(state.items()), []).extend(ports[key])
    for rows, together in packed.items():
        yield together, [(first[at], ready) for at, ready in sorted(rows, key=lambda row: (not row[1], row[0]))]


def unmirrored(mirrored: MirroredEndpoints) -> Iterable[tuple[str, str]]:
    if mirrored.invalid:
        message = f"Skipped {mirrored.invalid} invalid IP addresses when mirroring to EndpointSlices"
        yield "InvalidIPAddress", message
    if mirrored.skipped > mirrored.invalid:
        most = f"A max of {PER_SUBSET} addresses can be mirrored to EndpointSlices per Endpoints subset."
        yield "TooManyAddressesToMirror", f"{most} {mirrored.skipped} addresses were skipped"


def _key(mirror: Json) -> tuple[str, PortKey]:
    return mirror["addressType"], port_key(mirror.get("ports"))


def _labels(endpoints: Json) -> dict[str, str]:
    meta = endpoints["metadata"]
    return {**(meta.get("labels") or {}), SERVICE_NAME: meta["name"], MANAGED_BY: CONTROLLER}


def _annotations(endpoints: Json) -> dict[str, str]:
    annotations = endpoints["metadata"].get("annotations") or {}
    return {key: value for key, value in annotations.items() if key not in {TRIGGER_TIME, KUBECTL_LAST_APPLIED}}
