"""The repair loop of node ports: what Services have is taken, and what nobody has is free after three rounds.

As kube-apiserver's portallocator-repair-controller, at start and every three minutes.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.allocate import Ports
from kdns.controlplane.controller import Notice, Outcome, Subject
from kdns.controlplane.kinds import SERVICE, Json, Kind
from kdns.controlplane.repair_addresses import ROUND_S
from kdns.controlplane.services import ports_held
from kdns.controlplane.tally import Tally

ROUNDS_BEFORE_CLEANUP = 3


class PortRepair:
    """Its one subject is the round; it writes nothing but what `ports` remembers."""

    name = "portallocator-repair-controller"
    follows = (SERVICE,)
    settled: frozenset[Kind] = frozenset()

    def __init__(self, ports: Ports, tally: Tally) -> None:
        self._ports, self._tally = ports, tally
        self._is_started = False
        self._services: dict[Key, Json] = {}
        self._leaks: dict[int, int] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Note a Service that holds ports; only the first Service starts a round."""
        _ = kind, revision
        self._services.pop(key, None)
        if obj is not None and ports_held(obj):
            self._services[key] = obj
        started, self._is_started = self._is_started, True
        return () if started else (("ports",),)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """One round."""
        _ = subject, since_s, now_s
        notices: list[Notice] = []
        used: set[int] = set()
        for key, service in sorted(self._services.items(), key=lambda item: item[0]):
            for port in ports_held(service):
                used.add(port)
                kind, reason, message = self._problem(key, port)
                if kind:
                    self._tally.port_repairs[(kind,)] += 1
                    notices.append(Notice(SERVICE, service, "Warning", reason, message))
        self._free_leaks(used)
        return Outcome(notices=notices, again_s=ROUND_S)

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """It is counted."""
        _ = subject, error
        self._tally.failed_port_repairs += 1
        return None

    def _problem(self, key: Key, port: int) -> tuple[str, str, str]:
        """What is wrong with a port of a Service: what metrics call it, the Event's reason and message."""
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
                self._tally.port_repairs[("leak",)] += 1
            if rounds == ROUNDS_BEFORE_CLEANUP:
                self._ports.let_go(port, self._ports.owners[port])
