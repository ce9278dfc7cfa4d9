"""Requests to HCN, and those that lead from one state to another.

New endpoints come first, and load balancers change before their old endpoints are deleted. So a front never has a load
balancer without its endpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kdns.proxy.kernelspace.schema import HostComputeEndpoint, HostComputeLoadBalancer, LoadBalancerKey

EndpointPair: TypeAlias = tuple[HostComputeEndpoint | None, HostComputeEndpoint | None]
"""An endpoint before and after a change; None: absent."""
LoadBalancerPair: TypeAlias = tuple[HostComputeLoadBalancer | None, HostComputeLoadBalancer | None]
"""A load balancer before and after a change; None: absent."""


class Verb(Enum):
    """What a request does to its object."""

    CREATE = "Create"
    MODIFY = "Modify"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class Request:
    """A call of HCN about one object."""

    verb: Verb
    object: HostComputeEndpoint | HostComputeLoadBalancer

    @property
    def function(self) -> str:
        return f"Hcn{self.verb.value}{self.object.KIND}"

    @property
    def settings(self) -> str:
        if self.verb is Verb.DELETE:
            return ""
        if isinstance(self.object, HostComputeEndpoint) and self.verb is Verb.MODIFY:
            return json.dumps(self.object.modification)
        return json.dumps(self.object.document)

    def __str__(self) -> str:
        return f"{self.function} {self.object.id} {self.settings}".rstrip()


def requests(endpoints: Iterable[EndpointPair], load_balancers: Iterable[LoadBalancerPair]) -> Iterator[Request]:
    deleted_endpoints: list[Request] = []
    deleted_load_balancers: list[Request] = []
    for old, new in endpoints:
        if new is None:
            deleted_endpoints += [Request(Verb.DELETE, old)] if old else []
        elif old is None:
            yield Request(Verb.CREATE, new)
        elif old.provider_address != new.provider_address:
            yield Request(Verb.MODIFY, new)
    for before, after in load_balancers:
        if after is None:
            deleted_load_balancers += [Request(Verb.DELETE, before)] if before else []
        elif before is None:
            yield Request(Verb.CREATE, after)
        elif before != after:
            yield Request(Verb.MODIFY, after)
    yield from deleted_load_balancers
    yield from deleted_endpoints


def reconciling_requests(
    endpoints: Mapping[str, HostComputeEndpoint],
    load_balancers: Mapping[LoadBalancerKey, HostComputeLoadBalancer],
    existing_endpoints: Iterable[HostComputeEndpoint],
    existing_load_balancers: Iterable[HostComputeLoadBalancer],
) -> Iterator[Request]:
    """The requests that lead from existing objects to the desired ones.

    `existing_endpoints` are those that kdns created. Load balancers of others are deleted: HCN has one for a
    destination, so each is deleted just before the one that replaces it.

    Differs: kube-proxy deletes all load balancers of the machine at its start, and creates its own afterwards.
    """
    own = {endpoint.id: endpoint for endpoint in existing_endpoints}
    wanted_endpoints = {endpoint.id: endpoint for endpoint in endpoints.values()}
    pairs = [(own.get(name), wanted_endpoints.get(name)) for name in {**own, **wanted_endpoints}]
    of_endpoints = list(requests(pairs, ()))
    yield from (request for request in of_endpoints if request.verb is not Verb.DELETE)
    others = {balancer.id: balancer for balancer in existing_load_balancers}
    holders = {key: balancer for balancer in others.values() for key in balancer.keys}
    for key, wanted in load_balancers.items():
        existing, holder = others.pop(wanted.id, None), holders.get(key)
        if holder and holder.id != wanted.id and others.pop(holder.id, None):
            yield Request(Verb.DELETE, holder)
        yield from requests((), [(existing, wanted)])
    yield from requests((), [(balancer, None) for balancer in others.values()])
    yield from (request for request in of_endpoints if request.verb is Verb.DELETE)
