"""The repair loop of cluster IPs: every Service has the IPAddress objects of its addresses, and nobody else's.

As kube-apiserver's ipallocator-repair-controller, at start and every three minutes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from kdns.cluster.objects import Key
from kdns.controlplane.clusterconfig import Network
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.formats import parse_ip
from kdns.controlplane.ipaddresses import FAMILY_LABEL, ip_address_of, is_managed, names_of, parent_of, service_of
from kdns.controlplane.kinds import IP_ADDRESS, SERVICE, SERVICE_CIDR, Json, Kind
from kdns.controlplane.servicecidrs import holds, networks_of
from kdns.controlplane.services import address_family, addresses_of
from kdns.controlplane.tally import Tally

ROUND_S: Final = 180.0
ORPHAN_S: Final = 60.0
"""How long an IPAddress may be without its Service: another API server could be about to write that."""

_LOOKED_AT, _WRITTEN = 500, 100
"""How much is done at once, so that a round does not hold up everything else."""


class AddressRepair:
    """Its one subject is the round that is under way, if any."""

    name = "ipallocator-repair-controller"
    follows = (SERVICE_CIDR, SERVICE, IP_ADDRESS)
    settled: frozenset[Kind] = frozenset()

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._is_started = False
        self._networks: dict[str, tuple[Network, ...]] = {}
        self._services: dict[Key, Json] = {}
        self._objects: dict[str, Json] = {}
        self._todo: list[tuple[Kind, Key]] = []
        self._next_s = ROUND_S

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Note the object; only the first one starts a round."""
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

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """A part of the round; the next one begins three minutes after its end."""
        _ = subject, since_s
        if not self._todo:
            self._todo = [(IP_ADDRESS, ("", name)) for name in self._objects]
            self._todo += [(SERVICE, key) for key in sorted(self._services, reverse=True)]
            self._next_s = ROUND_S
        actions: list[Action] = []
        notices: list[Notice] = []
        made: dict[str, Json] = {}
        looked_at = 0
        while self._todo and looked_at < _LOOKED_AT and len(actions) < _WRITTEN:
            kind, key = self._todo.pop()
            looked_at += 1
            if kind == SERVICE and key in self._services:
                self._service(key, self._services[key], made, actions, notices)
            elif kind == IP_ADDRESS and key[1] in self._objects and key[1] not in made:
                self._object(self._objects[key[1]], now_s, actions, notices)
        return Outcome(actions, notices, again_s=0 if self._todo else self._next_s)

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """It is counted."""
        _ = subject, error
        self._tally.failed_address_repairs += 1
        return None

    def _service(
        self, key: Key, service: Json, made: dict[str, Json], actions: list[Action], notices: list[Notice]
    ) -> None:
        for address in addresses_of(service):
            parsed = parse_ip(address)
            said, found = f"Cluster IP {address} is not a valid IP; please recreate Service", None
            problem = ("invalid", "ClusterIPNotValid", said)
            if parsed:
                name = str(parsed)
                found = made.get(name) or self._objects.get(name)
                problem = self._problem(key, name, found)
            kind, reason, message = problem
            if kind:
                self._tally.address_repairs[(kind,)] += 1
            if reason:
                notices.append(Notice(SERVICE, service, "Warning", reason, message))
            if kind == "repair":
                actions += [Action("delete", IP_ADDRESS, found)] if found else []
                made[str(parsed)] = ip_address_of(key, str(parsed))
                actions.append(Action("create", IP_ADDRESS, made[str(parsed)]))

    def _problem(self, key: Key, name: str, found: Json | None) -> tuple[str, str, str]:
        """What is wrong with an address of a Service: what metrics call it, the Event's reason and message."""
        which = f"[{address_family(name)}]: {name}"
        if not self._in_range(name):
            message = f"Cluster IP {which} is not within any configured Service CIDR; please recreate service"
            return "outOfRange", "ClusterIPOutOfRange", message
        if found is None:
            return "repair", "ClusterIPNotAllocated", f"Cluster IP {which} is not allocated; repairing"
        owner = service_of(found)
        if owner != key:
            if owner and name in names_of(self._services.get(owner)):
                message = (
                    f"Cluster IP {which.replace(' ', '')} was assigned to multiple services; please recreate service"
                )
                return "duplicate", "ClusterIPAlreadyAllocated", message
            message = f"the ClusterIP {which} for Service {key[0]}/{key[1]} has a wrong reference; repairing"
            return "repair", "ClusterIPNotAllocated", message
        labels = found["metadata"].get("labels") or {}
        good = is_managed(found) and labels.get(FAMILY_LABEL) == address_family(name)
        return ("", "", "") if good else ("repair", "", "")

    def _in_range(self, name: str) -> bool:
        parsed = parse_ip(name)
        networks = (network for found in self._networks.values() for network in found)
        return parsed is not None and any(holds(network, parsed.version, int(parsed)) for network in networks)

    def _object(self, obj: Json, now_s: float, actions: list[Action], notices: list[Notice]) -> None:
        """An IPAddress that the allocator made and no Service has is deleted; those of others are left alone."""
        if not is_managed(obj) or obj["metadata"].get("deletionTimestamp"):
            return
        name, owner = obj["metadata"]["name"], service_of(obj)
        if owner is None:
            said = (
                f"IPAddress {name} appears to have been modified, not referencing a Service {_shown(obj)}: cleaning up"
            )
            problem = ("leak", "IPAddressNotAllocated", said)
        elif owner not in self._services:
            left_s = ORPHAN_S - (now_s - datetime.fromisoformat(obj["metadata"]["creationTimestamp"]).timestamp())
            if left_s >= 0:
                self._next_s = min(self._next_s, left_s + 1)
                return
            said = f"IPAddress: {name} for Service {owner[0]}/{owner[1]} appears to have leaked: cleaning up"
            problem = ("leak", "IPAddressNotAllocated", said)
        elif name not in names_of(self._services[owner]):
            said = f"IPAddress: {name} for Service {owner[0]}/{owner[1]} has a wrong reference; cleaning up"
            problem = ("repair", "IPAddressWrongReference", said)
        else:
            return
        self._tally.address_repairs[(problem[0],)] += 1
        notices.append(Notice(IP_ADDRESS, obj, "Warning", *problem[1:]))
        actions.append(Action("delete", IP_ADDRESS, obj))


def _shown(obj: Json) -> str:
    """The parent as Go prints it."""
    fields = (
        f"{name.capitalize()}:{parent_of(obj).get(name) or ''}," for name in ("group", "resource", "namespace", "name")
    )
    return f"&ParentReference{{{''.join(fields)}}}"
