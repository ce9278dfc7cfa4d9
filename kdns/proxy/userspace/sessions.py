"""The clients of relays: the endpoint that each gets, or the verdict without one, and counters of Service ports."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kdns.net import Address, parse_unmapped_address
from kdns.proxy.plan.branches import Branch, Client, Verdict
from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.plan import FamilyPlan, Front, Plan, PortName
from kdns.proxy.userspace.balancer import Balancer
from kdns.proxy.userspace.relays import RelayKey, leads_back


@dataclass(slots=True)
class PortCounters:
    """Counters of one Service port; `flows` are TCP connections or UDP clients.

    `retries` are attempts after the first of a connection, `failures` are connections for which none succeeded,
    `refused` were not allowed or had no endpoint, `turned_away` found no free descriptor. Bytes
    are from and to clients.
    """

    flows: int = 0
    active: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    retries: int = 0
    failures: int = 0
    refused: int = 0
    turned_away: int = 0


@dataclass(slots=True)
class Session:
    """A client at a front, and the branch it takes. `is_retry`: an endpoint was chosen for it before."""

    family_plan: FamilyPlan
    front: Front
    client: Address
    branch: Branch
    is_retry: bool = False

    @property
    def endpoints(self) -> tuple[ServiceEndpoint, ...]:
        """The endpoints to choose from; none where the verdict is REJECT or DROP."""
        return self.front.port.endpoints_of(self.branch.verdict)

    @property
    def is_rejected(self) -> bool:
        """Whether the client gets a reset or an ICMP error; without endpoints it otherwise gets no answer."""
        return self.branch.verdict is Verdict.REJECT


@dataclass(slots=True)
class Sessions:
    """Makes sessions by the current plan, and holds the counters of all Service ports. One event loop owns it."""

    balancer: Balancer
    plan: Plan | None = None
    counters: dict[PortName, PortCounters] = field(default_factory=dict)

    def front(self, relay: RelayKey) -> Front | None:
        return self.plan.of(relay.family).fronts.get(relay.front) if self.plan else None

    def accept(self, relay: RelayKey, client: str) -> Session | None:
        """Returns the session of a relay's client; None when the front is gone.

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
        return Session(family_plan, front, address, branch)

    def next_endpoint(self, session: Session, now_s: float) -> ServiceEndpoint | None:
        """Returns the next endpoint to try.

        Not the one before, if there is another. None: all of them lead back to relays.
        """
        endpoints, port = session.endpoints, session.front.port
        for _ in endpoints:
            endpoint = self.balancer.choose(port, endpoints, str(session.client), now_s, anew=session.is_retry)
            session.is_retry = True
            if not leads_back(session.family_plan, endpoint, session.front.key.protocol):
                return endpoint
        return None

    def counters_of(self, name: PortName) -> PortCounters:
        return self.counters.setdefault(name, PortCounters())

    def forget(self, name: PortName) -> None:
        self.balancer.forget(name)
        self.counters.pop(name, None)
