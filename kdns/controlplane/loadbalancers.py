"""Load balancers without a cloud: Services of type LoadBalancer get ingress addresses of a pool.

Events, finalizer and order of steps are those of Kubernetes' cloud-provider service controller; the address is all
there is behind it. Whatever stands in a Service's status, also by hand, is taken and is given to nobody else.

Differs: without a cloud controller manager nobody says that a load balancer failed for want of a pool, so without a
pool a Service is just pending, as on bare metal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kdns.cluster.objects import Key
from kdns.controlplane.clusterconfig import Address, AddressRange
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.formats import parse_ip
from kdns.controlplane.kinds import SERVICE, Json, Kind
from kdns.controlplane.services import LOAD_BALANCER, REQUIRE, ip_families, spec_of, type_of
from kdns.controlplane.status import StatusError

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
_CONFLICT = 409


def wants_address(service: Json) -> bool:
    """Whether the Service is a load balancer of nobody else's class, and not on its way out."""
    return (
        type_of(service) == LOAD_BALANCER and not spec_of(service).get("loadBalancerClass") and not _is_going(service)
    )


def ingress_of(service: Json) -> list[Json]:
    """status.loadBalancer.ingress, never None."""
    return ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []


def addresses_of(service: Json) -> list[Address]:
    """The addresses among the ingress points."""
    return [ip for entry in ingress_of(service) if (ip := parse_ip(entry.get("ip") or ""))]


class LoadBalancers:
    """Subjects are Services by namespace and name."""

    name = "service-lb-controller"
    follows = (SERVICE,)
    settled: frozenset[Kind] = frozenset()

    def __init__(self, pool: Sequence[AddressRange]) -> None:
        self._pool = pool
        self._used_below = [each.first for each in pool]
        self._services: dict[Key, Json] = {}
        self._users: dict[Address, dict[Key, None]] = {}
        self._waiting: dict[Key, str] = {}
        self._news: dict[Key, list[Notice]] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Note which addresses the Service has; whoever waits is looked at when one is free again."""
        _ = kind, revision
        old = self._services.pop(key, None)
        if obj is not None:
            self._services[key] = obj
        had, has = (set(addresses_of(each)) if each else set() for each in (old, obj))
        for ip in has - had:
            self._users.setdefault(ip, {})[key] = None
        for ip in had - has:
            del self._users[ip][key]
            if not self._users[ip]:
                del self._users[ip]
                for place, each in enumerate(self._pool):
                    if ip in each:
                        self._used_below[place] = min(self._used_below[place], int(ip))
        if obj is None or not wants_address(obj):
            self._waiting.pop(key, None)
            self._news.pop(key, None)
        if old and obj and self._pool and (news := list(_news(old, obj))):
            self._news.setdefault(key, []).extend(news)
        concerned = [key] if obj and (type_of(obj) == LOAD_BALANCER or FINALIZER in _finalizers(obj)) else []
        return [*concerned, *self._waiting] if had - has else concerned

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """One step: finalizer, then address; the other way round when the address is no longer wanted."""
        _ = since_s, now_s
        namespace, name = subject
        key = (namespace, name)
        service = self._services.get(key)
        if service is None:
            return Outcome()
        news = self._news.pop(key, [])
        if not wants_address(service):
            return self._taken_back(service, news)
        if not self._pool:
            return Outcome()
        if FINALIZER not in _finalizers(service):
            ensuring = Notice(SERVICE, service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
            return Outcome([_with_finalizers(service, [*_finalizers(service), FINALIZER])], [*news, ensuring])
        ingress, problems = self._wanted_ingress(key, service)
        actions = []
        if ingress != ingress_of(service):
            actions.append(_with_ingress(service, ingress))
            news.append(Notice(SERVICE, service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer"))
        if problems:
            said = "; ".join(problems)
            if self._waiting.get(key) != said:
                news.append(_failure(service, f"failed to ensure load balancer: {said}"))
            self._waiting[key] = said
        else:
            self._waiting.pop(key, None)
        return Outcome(actions, news)

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """A Warning; a Service that changed in between is looked at again anyway."""
        namespace, name = subject
        service = self._services.get((namespace, name))
        if service is None or (isinstance(error, StatusError) and error.code == _CONFLICT):
            return None
        return _failure(service, f"failed to update load balancer status: {error}")

    def _taken_back(self, service: Json, news: list[Notice]) -> Outcome:
        """The address goes first, then the finalizer, with which a Service that is being deleted goes."""
        if FINALIZER not in _finalizers(service):
            return Outcome((), news)
        left = [entry for entry in ingress_of(service) if not self._is_ours(parse_ip(entry.get("ip") or ""))]
        if left != ingress_of(service):
            return Outcome([_with_ingress(service, left)], news)
        kept = [each for each in _finalizers(service) if each != FINALIZER]
        news.append(Notice(SERVICE, service, "Normal", "DeletingLoadBalancer", "Deleting load balancer"))
        news.append(Notice(SERVICE, service, "Normal", "DeletedLoadBalancer", "Deleted load balancer"))
        return Outcome([_with_finalizers(service, kept)], news)

    def _wanted_ingress(self, key: Key, service: Json) -> tuple[list[Json], list[str]]:
        """The ingress points as they should be, and why one is missing; what is not of the pool stays as it is."""
        families = ip_families(service) or ["IPv4"]
        asked = parse_ip(spec_of(service).get("loadBalancerIP") or "")
        ingress = ingress_of(service)
        if asked and f"IPv{asked.version}" not in families:
            return ingress, [f"the requested IP {asked} is of no IP family of the Service"]
        if ingress and not addresses_of(service):
            return ingress, []
        has = {f"IPv{ip.version}": ip for ip in reversed(addresses_of(service))}
        served = {f"IPv{each.version}" for each in self._pool}
        problems = []
        for family in families:
            mine = has.get(family)
            wanted = asked if asked and f"IPv{asked.version}" == family else None
            if mine and (wanted in (None, mine) or not self._is_ours(mine)):
                continue
            if family not in served and not wanted and len(families) > 1 and not _requires_both(service):
                continue
            found, why = self._choice(key, family, wanted)
            if found is None:
                problems.append(why)
                continue
            ingress = [entry for entry in ingress if parse_ip(entry.get("ip") or "") != mine or mine is None]
            ingress.append({"ip": str(found), "ipMode": "VIP"})
        stale = [ip for family, ip in has.items() if family not in families and self._is_ours(ip)]
        ingress = [entry for entry in ingress if parse_ip(entry.get("ip") or "") not in stale]
        return sorted(ingress, key=lambda entry: _place(entry, families)), problems

    def _choice(self, key: Key, family: str, wanted: Address | None) -> tuple[Address | None, str]:
        """A free address of the pool, the wanted one if any; or why there is none."""
        pool = ",".join(each.text for each in self._pool)
        if wanted:
            users = [user for user in self._users.get(wanted, ()) if user != key]
            if not self._is_ours(wanted):
                return None, f"the requested IP {wanted} is not in the pool {pool}"
            if users:
                return None, f"the requested IP {wanted} is in use by Service {'/'.join(users[0])}"
            return wanted, ""
        found = next(self._free(family), None)
        return found, "" if found else f"no {family} address is free in the pool {pool}"

    def _free(self, family: str) -> Iterator[Address]:
        """The first free address of each range."""
        for place, each in enumerate(self._pool):
            if f"IPv{each.version}" != family:
                continue
            number = self._used_below[place]
            while number <= each.last and each.address(number) in self._users:
                number += 1
            self._used_below[place] = number
            if number <= each.last:
                yield each.address(number)

    def _is_ours(self, ip: Address | None) -> bool:
        return ip is not None and any(ip in each for each in self._pool)


def _is_going(service: Json) -> bool:
    return bool(service["metadata"].get("deletionTimestamp"))


def _requires_both(service: Json) -> bool:
    return bool(spec_of(service).get("ipFamilyPolicy") == REQUIRE)


def _place(entry: Json, families: Sequence[str]) -> int:
    ip = parse_ip(entry.get("ip") or "")
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


def _failure(service: Json, why: str) -> Notice:
    return Notice(SERVICE, service, "Warning", "SyncLoadBalancerFailed", f"Error syncing load balancer: {why}")


def _news(old: Json, new: Json) -> Iterator[Notice]:
    """What the cloud-provider controller tells of a change before it acts."""
    if wants_address(old) != wants_address(new) and not _is_going(new):
        yield Notice(SERVICE, new, "Normal", "Type", f"{type_of(old)} -> {type_of(new)}")
    elif wants_address(new) and spec_of(old).get("loadBalancerIP") != spec_of(new).get("loadBalancerIP"):
        before, now = (spec_of(each).get("loadBalancerIP") or "" for each in (old, new))
        yield Notice(SERVICE, new, "Normal", "LoadbalancerIP", f"{before} -> {now}")
