"""Objects of a cluster, in the Namespace `shop` where nothing else is said, and a state that has listed them."""

from typing import Any

from kdns.cluster.objects import (
    Conditions,
    Endpoint,
    EndpointSlice,
    Meta,
    Namespace,
    Object,
    Pod,
    PodIP,
    PodMeta,
    PodStatus,
    Service,
    ServiceMeta,
    ServiceSpec,
    SliceLabels,
    SliceMeta,
)
from kdns.cluster.state import State

LISTED: frozenset[type[Object]] = frozenset({Namespace, Service, EndpointSlice})
"""What answers about a cluster need."""


def service(name: str = "web", *ips: str, namespace: str = "shop", **spec: Any) -> Service:
    """A Service with these cluster IPs; "None" is a headless one's."""
    return Service(ServiceMeta(name, namespace), ServiceSpec(cluster_ip=ips[0] if ips else "", cluster_ips=ips, **spec))


def external_name(name: str, target: str) -> Service:
    return Service(ServiceMeta(name, "shop"), ServiceSpec(type="ExternalName", external_name=target))


def endpoint_slice(name: str, owner: str, *ends: str | Endpoint, ready: bool | None = None) -> EndpointSlice:
    """A slice of a Service, or of none; an end is an address, or an Endpoint."""
    endpoints = tuple(Endpoint((end,), Conditions(ready)) if isinstance(end, str) else end for end in ends)
    return EndpointSlice(SliceMeta(name, "shop", SliceLabels(owner) if owner else None), "IPv4", endpoints)


def pod(name: str, *ips: str, namespace: str = "shop", phase: str = "Running", **meta: Any) -> Pod:
    status = PodStatus(phase, ips[0] if ips else "", tuple(map(PodIP, ips)))
    return Pod(PodMeta(name, namespace, **meta), status)


def state_of(*objects: Object, synced: bool = True) -> State:
    """A state of these objects and of the Namespace `shop`."""
    state = State(synced=set(LISTED) if synced else set())
    for obj in (Namespace(Meta("shop")), *objects):
        state.upsert(obj)
    return state
