"""The service controller without a cloud: Services of type LoadBalancer get ingress addresses from a pool.

Events, finalizer and order of writes are those of Kubernetes' cloud-provider service controller. An address in the
status of a Service, even one that a client wrote, is in use and is not allocated again.

Differs: without a pool a Service stays pending without Events, as in a cluster without cloud controller manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import SERVICE, Json
from kdns.controlplane.cluster_config import AddressRange
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request, Result
from kdns.controlplane.kinds.service.spec import LOAD_BALANCER, REQUIRE, ingress_of, spec_of
from kdns.controlplane.storage.object_meta import is_terminating
from kdns.net import Address, parse_address

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"


def wants_address(service: Json) -> bool:
    """A LoadBalancer without loadBalancerClass that is not terminating."""
    return (
        spec_of(service).get("type") == LOAD_BALANCER
        and not spec_of(service).get("loadBalancerClass")
        and not is_terminating(service)
    )


def addresses_of(service: Json) -> list[Address]:
    return [ip for entry in ingress_of(service) if (ip := parse_address(entry.get("ip") or ""))]


class LoadBalancers(Reconciler):
    """Requests are Services by namespace and name."""

    name = "service-lb-controller"
    watches = (SERVICE,)

    def __init__(self, pool: Sequence[AddressRange]) -> None:
        self._pool = pool
        self._used_below = [addresses.first for addresses in pool]
        self._services: dict[Key, Json] = {}
        self._users: dict[Address, dict[Key, None]] = {}
        self._waiting: dict[Key, str] = {}
        self._events: dict[Key, list[Event]] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        _, key, obj, _ = change
        old = self._services.pop(key, None)
        if obj is not None:
            self._services[key] = obj
        had, has = (set(addresses_of(service)) if service else set() for service in (old, obj))
        for ip in has - had:
            self._users.setdefault(ip, {})[key] = None
        for ip in had - has:
            del self._users[ip][key]
            if not self._users[ip]:
                del self._users[ip]
                for index, addresses in enumerate(self._pool):
                    if ip in addresses:
                        self._used_below[index] = min(self._used_below[index], int(ip))
        if obj is None or not wants_address(obj):
            self._waiting.pop(key, None)
            self._events.pop(key, None)
        if old and obj and self._pool and (events := list(_events(old, obj))):
            self._events.setdefault(key, []).extend(events)
        concerned = (
            [key] if obj and (spec_of(obj).get("type") == LOAD_BALANCER or FINALIZER in _finalizers(obj)) else []
        )
        return [*concerned, *self._waiting] if had - has else concerned

    def reconcile(self, request: Request) -> Result:
        namespace, name = request.name
        key = (namespace, name)
        service = self._services.get(key)
        if service is None:
            return Result()
        events = self._events.pop(key, [])
        if not wants_address(service):
            return self._released(service, events)
        if not self._pool:
            return Result()
        if FINALIZER not in _finalizers(service):
            ensuring = Event(SERVICE, service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
            return Result([_with_finalizers(service, [*_finalizers(service), FINALIZER])], [*events, ensuring])
        ingress, problems = self._desired_ingress(key, service)
        actions = []
        if ingress != ingress_of(service):
            actions.append(_with_ingress(service, ingress))
            events.append(Event(SERVICE, service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer"))
        if problems:
            problem = "; ".join(problems)
            if self._waiting.get(key) != problem:
                events.append(_failure(service, f"failed to ensure load balancer: {problem}"))
            self._waiting[key] = problem
        else:
            self._waiting.pop(key, None)
        return Result(actions, events)

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        del action
        service = self._services.get(request.key)
        return _failure(service, f"failed to update load balancer status: {error}") if service else None

    def _released(self, service: Json, events: list[Event]) -> Result:
        """Removes the address, then the finalizer, which lets a terminating Service be deleted."""
        if FINALIZER not in _finalizers(service):
            return Result((), events)
        foreign = [entry for entry in ingress_of(service) if not self._is_of_pool(parse_address(entry.get("ip") or ""))]
        if foreign != ingress_of(service):
            return Result([_with_ingress(service, foreign)], events)
        finalizers = [finalizer for finalizer in _finalizers(service) if finalizer != FINALIZER]
        events.append(Event(SERVICE, service, "Normal", "DeletingLoadBalancer", "Deleting load balancer"))
        events.append(Event(SERVICE, service, "Normal", "DeletedLoadBalancer", "Deleted load balancer"))
        return Result([_with_finalizers(service, finalizers)], events)

    def _desired_ingress(self, key: Key, service: Json) -> tuple[list[Json], list[str]]:
        """The desired ingress points, and why one is missing. Addresses outside the pool stay."""
        families = spec_of(service).get("ipFamilies") or ["IPv4"]
        requested = parse_address(spec_of(service).get("loadBalancerIP") or "")
        ingress = ingress_of(service)
        if requested and f"IPv{requested.version}" not in families:
            return ingress, [f"the requested IP {requested} is of no IP family of the Service"]
        if ingress and not addresses_of(service):
            return ingress, []
        has = {f"IPv{ip.version}": ip for ip in reversed(addresses_of(service))}
        served = {f"IPv{addresses.version}" for addresses in self._pool}
        problems = []
        for family in families:
            mine = has.get(family)
            chosen = requested if requested and f"IPv{requested.version}" == family else None
            if mine and (chosen in (None, mine) or not self._is_of_pool(mine)):
                continue
            is_optional = len(families) > 1 and spec_of(service).get("ipFamilyPolicy") != REQUIRE
            if family not in served and not chosen and is_optional:
                continue
            address, why = self._choice(key, family, chosen)
            if address is None:
                problems.append(why)
                continue
            ingress = [entry for entry in ingress if parse_address(entry.get("ip") or "") != mine or mine is None]
            ingress.append({"ip": str(address), "ipMode": "VIP"})
        stale = [ip for family, ip in has.items() if family not in families and self._is_of_pool(ip)]
        ingress = [entry for entry in ingress if parse_address(entry.get("ip") or "") not in stale]
        return sorted(ingress, key=lambda entry: _family_index(entry, families)), problems

    def _choice(self, key: Key, family: str, requested: Address | None) -> tuple[Address | None, str]:
        """The requested or a free address of the pool, or the reason for its absence."""
        pool = ",".join(addresses.text for addresses in self._pool)
        if requested:
            users = [user for user in self._users.get(requested, ()) if user != key]
            if not self._is_of_pool(requested):
                return None, f"the requested IP {requested} is not in the pool {pool}"
            if users:
                return None, f"the requested IP {requested} is in use by Service {'/'.join(users[0])}"
            return requested, ""
        address = next(self._free(family), None)
        return address, "" if address else f"no {family} address is free in the pool {pool}"

    def _free(self, family: str) -> Iterator[Address]:
        for index, addresses in enumerate(self._pool):
            if f"IPv{addresses.version}" != family:
                continue
            number = self._used_below[index]
            while number <= addresses.last and addresses.address(number) in self._users:
                number += 1
            self._used_below[index] = number
            if number <= addresses.last:
                yield addresses.address(number)

    def _is_of_pool(self, ip: Address | None) -> bool:
        return ip is not None and any(ip in addresses for addresses in self._pool)


def _family_index(entry: Json, families: Sequence[str]) -> int:
    ip = parse_address(entry.get("ip") or "")
    family = f"IPv{ip.version}" if ip else ""
    return families.index(family) if family in families else len(families)


def _finalizers(service: Json) -> list[str]:
    return service["metadata"].get("finalizers") or []


def _with_finalizers(service: Json, finalizers: list[str]) -> Action:
    meta = {name: value for name, value in service["metadata"].items() if name != "finalizers"}
    return Action("update", SERVICE, {**service, "metadata": meta | ({"finalizers": finalizers} if finalizers else {})})


def _with_ingress(service: Json, ingress: list[Json]) -> Action:
    status = {**(service.get("status") or {}), "loadBalancer": {"ingress": ingress} if ingress else {}}
    return Action("update", SERVICE, {**service, "status": status}, "status")


def _failure(service: Json, why: str) -> Event:
    return Event(SERVICE, service, "Warning", "SyncLoadBalancerFailed", f"Error syncing load balancer: {why}")


def _events(old: Json, new: Json) -> Iterator[Event]:
    if wants_address(old) != wants_address(new) and not is_terminating(new):
        yield Event(SERVICE, new, "Normal", "Type", f"{spec_of(old).get('type')} -> {spec_of(new).get('type')}")
    elif wants_address(new) and spec_of(old).get("loadBalancerIP") != spec_of(new).get("loadBalancerIP"):
        before, now = (spec_of(service).get("loadBalancerIP") or "" for service in (old, new))
        yield Event(SERVICE, new, "Normal", "LoadbalancerIP", f"{before} -> {now}")
