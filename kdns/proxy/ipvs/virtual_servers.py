"""Virtual servers of the kernel's load balancer (IPVS): one for each address and port that leads to endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from kdns.proxy.plan.branches import LISTS, Branches, Verdict
from kdns.proxy.plan.plan import Front

PERSISTENT: Final = 0x0001
"""IP_VS_SVC_F_PERSISTENT: a client keeps its endpoint."""
MH_PORT: Final = 0x0010
"""IP_VS_SVC_F_SCHED_MH_PORT: scheduler mh hashes the client's port beside its address (ipvsadm's mh-port)."""
SCHEDULER_FLAGS: Final = {"mh": MH_PORT}
"""Flags that kube-proxy sets for a scheduler: without it, mh sends all connections of a client to one endpoint."""
SCHEDULERS: Final = {
    "rr": "each in turn",
    "wrr": "each in turn",
    "lc": "the one with the fewest connections",
    "wlc": "the one with the fewest connections",
    "lblc": "the same as long as it has not too many connections",
    "lblcr": "of those used before the one with the fewest connections, and others where these have too many",
    "dh": "by a hash of the destination, always the same",
    "sh": "by a hash of the client's address",
    "mh": "by a hash of the client's address and port",
    "sed": "the one with the shortest expected delay, that is the fewest connections",
    "nq": "one without connections, or else the one with the shortest expected delay",
    "fo": "always the same, as long as it is there",
    "ovf": "the same as long as it has no connection, then the next",
    "twos": "the one with fewer connections of two that are drawn",
}
"""The kernel's schedulers, and which endpoint each chooses where all have the same weight."""


class VirtualServerKey(NamedTuple):
    """Destination of packets; the address is in canonical form."""

    address: str
    port: int
    protocol: str


class Destination(NamedTuple):
    """A real server: an endpoint. Weight 0 gets no new connections; here every endpoint has the weight 1."""

    address: str
    port: int
    weight: int = 1


@dataclass(frozen=True, slots=True)
class VirtualServer:
    """What the kernel does at one destination. `persistence_s`: 0 for none; each client is one for itself."""

    scheduler: str
    destinations: tuple[Destination, ...]
    flags: int = 0
    persistence_s: int = 0


def chosen_by(scheduler: str) -> str:
    """Which endpoint a scheduler chooses, in words that follow "one of 3 endpoints,"."""
    return SCHEDULERS.get(scheduler, f"as the kernel's scheduler {scheduler} chooses")


def list_verdict(branches: Branches) -> Verdict | None:
    """The one list of endpoints that clients of a front get; None where no client gets one."""
    return next((each.verdict for each in branches if each.verdict in LISTS), None)


def virtual_server(front: Front, scheduler: str) -> VirtualServer | None:
    """The virtual server of a front; None where no client gets an endpoint."""
    verdict = list_verdict(front.branches)
    if verdict is None:
        return None
    destinations = tuple(Destination(each.address, each.port) for each in front.port.list_of(verdict))
    flags, affinity_s = SCHEDULER_FLAGS.get(scheduler, 0), front.port.affinity_s
    flags |= PERSISTENT if affinity_s else 0
    return VirtualServer(scheduler, destinations, flags, affinity_s)
