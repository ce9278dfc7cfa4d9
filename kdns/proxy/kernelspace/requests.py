"""Requests to HCN, and those that lead from one state to another.

New endpoints come first, and load balancers change before their old endpoints are deleted. So a front never has a load
balancer without its endpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import starmap
from typing import TypeAlias, TypeVar

from kdns.proxy.kernelspace.schema import HostComputeEndpoint, HostComputeLoadBalancer, LoadBalancerKey

HcnObject: TypeAlias = HostComputeEndpoint | HostComputeLoadBalancer
Pair: TypeAlias = tuple[HcnObject | None, HcnObject | None]
"""An object before and after a change; None: absent."""
K = TypeVar("K")


class Verb(Enum):
    """What a request does to its object."""

    CREATE = "Create"
    MODIFY = "Modify"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class Request:
    """A call of HCN about one object."""

    verb: Verb
    object: HcnObject

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


def pairs(old: Mapping[K, HcnObject], new: Mapping[K, HcnObject]) -> Iterator[Pair]:
    """The objects that may differ."""
    return ((old.get(key), new.get(key)) for key in {**old, **new} if old.get(key) is not new.get(key))


def requests(endpoints: Iterable[Pair], load_balancers: Iterable[Pair]) -> Iterator[Request]:
    of_endpoints = list(filter(None, starmap(_request, endpoints)))
    of_balancers = list(filter(None, starmap(_request, load_balancers)))
    yield from (request for request in (*of_endpoints, *of_balancers) if request.verb is not Verb.DELETE)
    yield from (request for request in (*of_balancers, *of_endpoints) if request.verb is Verb.DELETE)


def _request(old: HcnObject | None, new: HcnObject | None) -> Request | None:
    if new is None:
        return Request(Verb.DELETE, old) if old else None
    if old is None:
        return Request(Verb.CREATE, new)
    return Request(Verb.MODIFY, new) if old.modifiable != new.modifiable else None


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
    of_endpoints = list(requests(pairs(own, wanted_endpoints), ()))
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
