"""The repair loops of cluster IPs and node ports, at start and every three minutes (kube-apiserver).

ipallocator-repair-controller: each Service has the IPAddress objects of its addresses; other IPAddresses are deleted.
portallocator-repair-controller: ports of Services are allocated, and a port without Service is free after three rounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from kdns.cluster.objects import Key
from kdns.controlplane.controllers.controller import Action, Event, Request, Result
from kdns.controlplane.controllers.service.service_cidrs import holds
from kdns.controlplane.meta.kinds import IP_ADDRESS, SERVICE, SERVICE_CIDR, Json, Kind
from kdns.controlplane.resources.service.allocator import AllocatorMetrics, Ports
from kdns.controlplane.resources.service.service_cidr import (
    FAMILY_LABEL,
    ip_address_of,
    is_managed,
    names_of,
    networks_of,
    parent_of,
    service_of,
)
from kdns.controlplane.resources.service.spec import address_family, addresses_of, ports_held
from kdns.controlplane.storage.object_meta import is_terminating
from kdns.net import Network, parse_address

ROUND_S: Final = 180.0
ORPHAN_S: Final = 60.0
"""How long an IPAddress may exist before its Service, which another API server may be about to write."""

OBJECTS_CHECKED_MAX, WRITES_MAX = 500, 100
"""The objects checked and written in one reconcile."""

ROUNDS_BEFORE_CLEANUP = 3


class AddressRepair:
    """Its only request is the round."""

    name = "ipallocator-repair-controller"
    watches = (SERVICE_CIDR, SERVICE, IP_ADDRESS)
    ignores_own_writes_of: frozenset[Kind] = frozenset()

    def __init__(self, metrics: AllocatorMetrics) -> None:
        self._metrics = metrics
        self._is_started = False
        self._networks: dict[str, tuple[Network, ...]] = {}
        self._services: dict[Key, Json] = {}
        self._objects: dict[str, Json] = {}
        self._todo: list[tuple[Kind, Key]] = []
        self._next_s = ROUND_S

    def observe(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Request]:
        """Indexes the object; the first one starts a round."""
        _ = revision
        if kind == SERVICE_CIDR:
            self._networks.pop(key[1], None)
            if obj is not None:
                self._networks[key[1]] = networks_of(obj)
        elif kind == SERVICE:
            self._services.pop(key, None)
            if obj is not None and addresses_of(obj):
                self._services[key] = obj
        else:
            self._objects.pop(key[1], None)
            if obj is not None:
                self._objects[key[1]] = obj
        started, self._is_started = self._is_started, True
        return () if started else (("addresses",),)

    def reconcile(self, request: Request, since_s: float, now_s: float) -> Result:
        """Runs a part of the round; the next round begins three minutes after its end."""
        _ = request, since_s
        if not self._todo:
            self._todo = [(IP_ADDRESS, ("", name)) for name in self._objects]
            self._todo += [(SERVICE, key) for key in sorted(self._services, reverse=True)]
            self._next_s = ROUND_S
        actions: list[Action] = []
        events: list[Event] = []
        made: dict[str, Json] = {}
        looked_at = 0
        while self._todo and looked_at < OBJECTS_CHECKED_MAX and len(actions) < WRITES_MAX:
            kind, key = self._todo.pop()
            looked_at += 1
            if kind == SERVICE and key in self._services:
                self._service(key, self._services[key], made, actions, events)
            elif kind == IP_ADDRESS and key[1] in self._objects and key[1] not in made:
                self._object(self._objects[key[1]], now_s, actions, events)
        return Result(actions, events, requeue_after_s=0 if self._todo else self._next_s)

    def failed(self, request: Request, error: Exception) -> Event | None:
        """Returns no Event; counts the failure."""
        _ = request, error
        self._metrics.failed_address_repairs += 1
        return None

    def _service(
        self, key: Key, service: Json, made: dict[str, Json], actions: list[Action], events: list[Event]
    ) -> None:
        for address in addresses_of(service):
            parsed = parse_address(address)
            message, obj = f"Cluster IP {address} is not a valid IP; please recreate Service", None
            problem = ("invalid", "ClusterIPNotValid", message)
            if parsed:
                name = str(parsed)
                obj = made.get(name) or self._objects.get(name)
                problem = self._problem(key, name, obj)
            kind, reason, message = problem
            if kind:
                self._metrics.address_repairs[(kind,)] += 1
            if reason:
                events.append(Event(SERVICE, service, "Warning", reason, message))
            if kind == "repair":
                actions += [Action("delete", IP_ADDRESS, obj)] if obj else []
                made[str(parsed)] = ip_address_of(key, str(parsed))
                actions.append(Action("create", IP_ADDRESS, made[str(parsed)]))

    def _problem(self, key: Key, name: str, obj: Json | None) -> tuple[str, str, str]:
        """Returns the problem of a Service's address: its label in metrics, and the Event's reason and message."""
        which = f"[{address_family(name)}]: {name}"
        if not self._in_range(name):
            message = f"Cluster IP {which} is not within any configured Service CIDR; please recreate service"
            return "outOfRange", "ClusterIPOutOfRange", message
        if obj is None:
            return "repair", "ClusterIPNotAllocated", f"Cluster IP {which} is not allocated; repairing"
        owner = service_of(obj)
        if owner != key:
            if owner and name in names_of(self._services.get(owner)):
                message = (
                    f"Cluster IP {which.replace(' ', '')} was assigned to multiple services; please recreate service"
                )
                return "duplicate", "ClusterIPAlreadyAllocated", message
            message = f"the ClusterIP {which} for Service {key[0]}/{key[1]} has a wrong reference; repairing"
            return "repair", "ClusterIPNotAllocated", message
        labels = obj["metadata"].get("labels") or {}
        good = is_managed(obj) and labels.get(FAMILY_LABEL) == address_family(name)
        return ("", "", "") if good else ("repair", "", "")

    def _in_range(self, name: str) -> bool:
        parsed = parse_address(name)
        networks = (network for each in self._networks.values() for network in each)
        return parsed is not None and any(holds(network, parsed.version, int(parsed)) for network in networks)

    def _object(self, obj: Json, now_s: float, actions: list[Action], events: list[Event]) -> None:
        """Deletes an IPAddress that the allocator made and no Service has; those of others are kept."""
        if not is_managed(obj) or is_terminating(obj):
            return
        name, owner = obj["metadata"]["name"], service_of(obj)
        if owner is None:
            message = (
                f"IPAddress {name} appears to have been modified, not referencing a Service {_shown(obj)}: cleaning up"
            )
            problem = ("leak", "IPAddressNotAllocated", message)
        elif owner not in self._services:
            left_s = ORPHAN_S - (now_s - datetime.fromisoformat(obj["metadata"]["creationTimestamp"]).timestamp())
            if left_s >= 0:
                self._next_s = min(self._next_s, left_s + 1)
                return
            message = f"IPAddress: {name} for Service {owner[0]}/{owner[1]} appears to have leaked: cleaning up"
            problem = ("leak", "IPAddressNotAllocated", message)
        elif name not in names_of(self._services[owner]):
            message = f"IPAddress: {name} for Service {owner[0]}/{owner[1]} has a wrong reference; cleaning up"
            problem = ("repair", "IPAddressWrongReference", message)
        else:
            return
        self._metrics.address_repairs[(problem[0],)] += 1
        events.append(Event(IP_ADDRESS, obj, "Warning", *problem[1:]))
        actions.append(Action("delete", IP_ADDRESS, obj))


def _shown(obj: Json) -> str:
    """Returns spec.parentRef as Go prints it."""
    fields = (
        f"{name.capitalize()}:{parent_of(obj).get(name) or ''}," for name in ("group", "resource", "namespace", "name")
    )
    return f"&ParentReference{{{''.join(fields)}}}"


class PortRepair:
    """Its only request is the round; it changes the allocations in `ports` and writes no object."""

    name = "portallocator-repair-controller"
    watches = (SERVICE,)
    ignores_own_writes_of: frozenset[Kind] = frozenset()

    def __init__(self, ports: Ports, metrics: AllocatorMetrics) -> None:
        self._ports, self._metrics = ports, metrics
        self._is_started = False
        self._services: dict[Key, Json] = {}
        self._leaks: dict[int, int] = {}

    def observe(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Request]:
        """Indexes a Service with allocated ports; the first Service starts a round."""
        _ = kind, revision
        self._services.pop(key, None)
        if obj is not None and ports_held(obj):
            self._services[key] = obj
        started, self._is_started = self._is_started, True
        return () if started else (("ports",),)

    def reconcile(self, request: Request, since_s: float, now_s: float) -> Result:
        """Runs one round."""
        _ = request, since_s, now_s
        events: list[Event] = []
        used: set[int] = set()
        for key, service in sorted(self._services.items(), key=lambda item: item[0]):
            for port in ports_held(service):
                used.add(port)
                kind, reason, message = self._problem(key, port)
                if kind:
                    self._metrics.port_repairs[(kind,)] += 1
                    events.append(Event(SERVICE, service, "Warning", reason, message))
        self._free_leaks(used)
        return Result(events=events, requeue_after_s=ROUND_S)

    def failed(self, request: Request, error: Exception) -> Event | None:
        """Returns no Event; counts the failure."""
        _ = request, error
        self._metrics.failed_port_repairs += 1
        return None

    def _problem(self, key: Key, port: int) -> tuple[str, str, str]:
        """Returns the problem of a Service's port: its label in metrics, and the Event's reason and message."""
        if port not in self._ports.range:
            message = f"Port {port} is not within the port range {self._ports.valid}; please recreate service"
            return "outOfRange", "PortOutOfRange", message
        owner = self._ports.owners.get(port)
        if owner == key:
            return "", "", ""
        if owner and port in ports_held(self._services.get(owner, {})):
            message = f"Port {port} was assigned to multiple services; please recreate service"
            return "duplicate", "PortAlreadyAllocated", message
        if owner:
            self._ports.let_go(port, owner)
        self._ports.remember(port, key)
        return "repair", "PortNotAllocated", f"Port {port} is not allocated; repairing"

    def _free_leaks(self, used: set[int]) -> None:
        leaked = self._ports.owners.keys() - used
        self._leaks = {port: self._leaks.get(port, 0) + 1 for port in leaked}
        for port, rounds in self._leaks.items():
            if rounds == 1:
                self._metrics.port_repairs[("leak",)] += 1
            if rounds == ROUNDS_BEFORE_CLEANUP:
                self._ports.let_go(port, self._ports.owners[port])
