"""The clients of relays: the endpoint that each gets, in turn or by session affinity, and counters of Service ports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from kdns.net import Address, parse_unmapped_address
from kdns.proxy.plan.branches import Branch, Client
from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.plan import FamilyPlan, Front, Plan, PortName
from kdns.proxy.userspace.relays import RelayKey, leads_back

MAX_CLIENTS: Final = 65536
"""Clients with session affinity per Service port; the least recently used one is evicted."""


@dataclass(slots=True)
class PortState:
    """One Service port: counters, the round robin's next turn, and the clients with session affinity.

    `flows` are TCP connections or UDP clients. `retries` are attempts after the first of a connection, `failures` are
    connections for which none succeeded, `refused` were not allowed or had no endpoint, `turned_away` found no free
    descriptor. Bytes are from and to clients.
    `clients` are in the order of last use: the endpoint of each, and when it last connected. `affinity_s` is the
    timeout that applies to them.
    """

    turn: int = -1
    flows: int = 0
    active: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    retries: int = 0
    failures: int = 0
    refused: int = 0
    turned_away: int = 0
    affinity_s: int = 0
    clients: dict[str, tuple[ServiceEndpoint, float]] = field(default_factory=dict)


@dataclass(slots=True)
class Session:
    """A client at a front, and the branch it takes. `is_retry`: an endpoint was chosen for it before."""

    family_plan: FamilyPlan
    front: Front
    client: Address
    branch: Branch
    port: PortState
    is_retry: bool = False

    @property
    def endpoints(self) -> tuple[ServiceEndpoint, ...]:
        """The endpoints to choose from; none where the verdict is REJECT or DROP."""
        return self.front.port.endpoints_of(self.branch.verdict)


@dataclass(slots=True)
class Sessions:
    """Makes sessions by the current plan, and holds the state of all Service ports. One event loop owns it.

    `draw(n)` is the index of the endpoint, of n, with which a Service port begins, so that nodes begin with different
    ones.
    """

    plan: Plan | None = None
    draw: Callable[[int], int] = lambda count: 0 * count
    ports: dict[PortName, PortState] = field(default_factory=dict)

    def front(self, relay: RelayKey) -> Front | None:
        return self.plan.of(relay.family).fronts.get(relay.front) if self.plan else None

    def accept(self, relay: RelayKey, client: str) -> Session | None:
        """The session of a relay's client; None when the front is gone.

        Where packets are captured, the rules have chosen the list. Where they are not, the interface of arrival is not
        known, so local Pods are detected by their networks or not at all.
        """
        front, address = self.front(relay), parse_unmapped_address(client)
        if self.plan is None or front is None or address is None:
            return None
        family_plan = self.plan.of(relay.family)
        branch = family_plan.branch(front, address)
        if relay.endpoint_set and branch.client is not Client.OUTSIDE_SOURCE_RANGES:
            branch = replace(branch, verdict=relay.endpoint_set)
        return Session(family_plan, front, address, branch, self.ports.setdefault(front.port.name, PortState()))

    def next_endpoint(self, session: Session, now_s: float) -> ServiceEndpoint | None:
        """The next endpoint to try, not the previous one if there is another; None: all of them lead back to relays."""
        for _ in session.endpoints:
            endpoint = self._choose(session, now_s)
            session.is_retry = True
            if not leads_back(session.family_plan, endpoint, session.front.key.protocol):
                return endpoint
        return None

    def _choose(self, session: Session, now_s: float) -> ServiceEndpoint:
        """The endpoint of the client's affinity, unless that has failed; else the next one in turn."""
        port, endpoints, client = session.port, session.endpoints, str(session.client)
        affinity_s = port.affinity_s = session.front.port.affinity_s
        endpoint, used_s = port.clients.pop(client, (None, 0.0)) if affinity_s else (None, 0.0)
        if endpoint is None or session.is_retry or now_s - used_s >= affinity_s or endpoint not in endpoints:
            if port.turn < 0:
                port.turn = self.draw(len(endpoints))
            endpoint = endpoints[port.turn % len(endpoints)]
            port.turn += 1
        if affinity_s:
            port.clients[client] = endpoint, now_s
            if len(port.clients) > MAX_CLIENTS:
                del port.clients[next(iter(port.clients))]
        return endpoint

    def sweep(self, now_s: float) -> None:
        """Forgets the clients whose affinity has timed out."""
        for port in self.ports.values():
            while port.clients:
                client, (_, used_s) = next(iter(port.clients.items()))
                if now_s - used_s < port.affinity_s:
                    break
                del port.clients[client]
