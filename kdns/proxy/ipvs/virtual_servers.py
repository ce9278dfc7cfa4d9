"""Virtual servers of the kernel's load balancer (IPVS): one for each address and port that leads to endpoints."""

from __future__ import annotations

from typing import Final

from kdns.netlink.ipvs import Destination, ServerOptions, VirtualServer
from kdns.netlink.uapi import IP_VS_SVC_F_PERSISTENT, IP_VS_SVC_F_SCHED2
from kdns.proxy.plan.plan import Front

SCHEDULER_FLAGS: Final = {"mh": IP_VS_SVC_F_SCHED2}
"""Flags that kube-proxy sets for a scheduler: without it, mh sends all connections of a client to one endpoint."""
_ENDPOINT: Final = Destination()


def virtual_server(front: Front, scheduler: str) -> VirtualServer | None:
    if not front.lists:
        return None
    flags, affinity_s = SCHEDULER_FLAGS.get(scheduler, 0), front.port.affinity_s
    flags |= IP_VS_SVC_F_PERSISTENT if affinity_s else 0
    destinations = {(each.address, each.port): _ENDPOINT for each in front.port.endpoints_of(front.lists[0])}
    return VirtualServer(ServerOptions(scheduler, flags, affinity_s), destinations)
