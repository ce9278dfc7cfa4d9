"""What relays ask for each connection: which endpoint a client gets, or why none. One event loop owns it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import ip_address

from kdns.proxy.backends import Backend
from kdns.proxy.balancer import Balancer
from kdns.proxy.config import Address, parsed_address
from kdns.proxy.decision import Because, Decision, decision
from kdns.proxy.plan import FamilyPlan, Front, FrontKind, Plan, PortName, Verdict
from kdns.proxy.proxyprotocol import HEADERS
from kdns.proxy.userspace import RelayKey, leads_back


@dataclass(slots=True)
class PortCounters:
    """What one Service port saw since the relays know it; `flows` are TCP connections, or UDP clients.

    `retries` are attempts after the first of a connection, `failures` are connections for which none succeeded,
    `refused` were not allowed or found no endpoint, `turned_away` found no room. Bytes are from and to clients.
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
class Call:
    """A client at a front, and what was decided of it. `has_tried` says that an endpoint was chosen before."""

    half: FamilyPlan
    front: Front
    client: Address
    decided: Decision
    has_tried: bool = False

    @property
    def is_refused(self) -> bool:
        """Whether the client is told that nobody is there; otherwise, without backends, it hears nothing."""
        return self.decided.verdict is Verdict.REJECT


@dataclass(slots=True)
class Relaying:
    """The plan, whose turn it is, and the counters of all Service ports."""

    balancer: Balancer
    plan: Plan | None = None
    counters: dict[PortName, PortCounters] = field(default_factory=dict)

    def front(self, relay: RelayKey) -> Front | None:
        """What the relay serves; None when its Service is gone."""
        return self.plan.of(relay.family).fronts.get(relay.front) if self.plan else None

    def call(self, relay: RelayKey, client: str) -> Call | None:
        """What is decided of a client; None when there is no such Service any more.

        Where nothing is captured, nobody knows on which interface a client came in: then this node's Pods are known by
        their networks, or not at all.
        """
        front, address = self.front(relay), parsed_address(client)
        if self.plan is None or front is None or address is None:
            return None
        half = self.plan.of(relay.family)
        decided = decision(half, front, address)
        if relay.list and decided.because is not Because.GUARDED:
            is_local = relay.list == "local-endpoint"
            backends = front.port.backends.local if is_local else front.port.backends.cluster
            decided = replace(decided, verdict=Verdict.LOCAL if is_local else Verdict.CLUSTER, backends=backends)
        return Call(half, front, address, decided)

    def choose(self, call: Call, now_s: float) -> Backend | None:
        """The next endpoint for the client: after the first, another one than before, if there is one."""
        backends = call.decided.backends
        port = call.front.port
        for _ in backends:
            backend = self.balancer.choose(port, backends, str(call.client), now_s, anew=call.has_tried)
            call.has_tried = True
            if not leads_back(call.half, backend, call.front.key.protocol):
                return backend
        return None

    def counters_of(self, name: PortName) -> PortCounters:
        """The counters of a Service port."""
        return self.counters.setdefault(name, PortCounters())

    def forget(self, name: PortName) -> None:
        """The Service port is gone."""
        self.balancer.forget(name)
        self.counters.pop(name, None)


def header(call: Call, client_port: int) -> bytes:
    """What the endpoint is told before the client's first byte; mostly nothing."""
    front = call.front
    make = HEADERS.get(front.port.proxy_protocol)
    if make is None or front.kind is not FrontKind.LOAD_BALANCER_IP:
        return b""
    return make(call.client, client_port, ip_address(front.key.address), front.key.port)
