"""Virtual servers of the kernel's load balancer (IPVS): one for each address and port that leads to endpoints."""

from __future__ import annotations

from typing import Final

from kdns.netlink.ipvs import Destination, ServerOptions, VirtualServer
from kdns.netlink.uapi import IP_VS_SVC_F_PERSISTENT, IP_VS_SVC_F_SCHED2
from kdns.proxy.plan.plan import Front

SCHEDULER_FLAGS: Final = {"mh": IP_VS_SVC_F_SCHED2}
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
_ENDPOINT: Final = Destination()


def chosen_by(scheduler: str) -> str:
    """Returns which endpoint a scheduler chooses, in words that follow "one of 3 endpoints,"."""
    return SCHEDULERS.get(scheduler, f"as the kernel's scheduler {scheduler} chooses")


def virtual_server(front: Front, scheduler: str) -> VirtualServer | None:
    """Returns the virtual server of a front; None if no client gets an endpoint."""
    if not front.lists:
        return None
    flags, affinity_s = SCHEDULER_FLAGS.get(scheduler, 0), front.port.affinity_s
    flags |= IP_VS_SVC_F_PERSISTENT if affinity_s else 0
    destinations = {(each.address, each.port): _ENDPOINT for each in front.port.endpoints_of(front.lists[0])}
    return VirtualServer(ServerOptions(scheduler, flags, affinity_s), destinations)
