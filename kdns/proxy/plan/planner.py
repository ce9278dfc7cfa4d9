"""The plan of a changing cluster: a change replaces the plans of the Services it affects and yields the difference.

Where two Service ports claim one address and port, a cluster IP has precedence over a load balancer's address and that
over an external IP; then the first by name has the front, and the other gets it when the first releases it. The result
depends on the state alone, so an updated plan equals a new one.

Differs: in kube-proxy the Service port that it handles last has the front. Any author of a Service may set any external
IP, so an external IP must not take the traffic of another's cluster IP.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from kdns.cluster.objects import EndpointSlice, Key, Service
from kdns.cluster.state import AnyChange, State
from kdns.net import FAMILIES, Family
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey, FrontKind, Plan, PortName, PortPlan
from kdns.proxy.plan.service_ports import empty_plan, plan_service


@dataclass(frozen=True, slots=True)
class Difference:
    """The fronts and Service ports that differ between two plans of a family, before and after; None: absent."""

    fronts: Mapping[FrontKey, tuple[Front | None, Front | None]] = field(default_factory=dict)
    ports: Mapping[PortName, tuple[PortPlan | None, PortPlan | None]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.fronts or self.ports)


def plan(state: State, node: NodeView, config: ProxyConfig) -> Plan:
    """The plan for all Services of the state."""
    return Planner(state, node, config).plan


class Planner:
    """The plan of a changing state. One event loop owns it.

    It starts with `services` (None: all of the state); others come in by `update`.
    """

    def __init__(
        self, state: State, node: NodeView, config: ProxyConfig, *, services: Iterable[Key] | None = None
    ) -> None:
        self.state, self.node, self.config = state, node, config
        self._halves = {family: _Half(empty_plan(family, config, node)) for family in FAMILIES}
        self.plan = self._planned()
        self.update(state.services if services is None else services)

    def changed(self, changes: Iterable[AnyChange]) -> dict[Family, Difference]:
        """Update by changes that the state has already taken."""
        return self.update(dict.fromkeys(key for change in changes for key in affected_services(change)))

    def update(self, keys: Iterable[Key]) -> dict[Family, Difference]:
        """Plan these Services again; the difference for each family."""
        keys = tuple(keys)
        differences = {family: self._update(family, keys) for family in FAMILIES}
        self.plan = self._planned()
        return differences

    def _update(self, family: Family, keys: Iterable[Key]) -> Difference:
        half = self._halves[family]
        for key in keys:
            service = self.state.services.get(key)
            slices = self.state.slices_by_service.get(key, {}).values()
            ports = plan_service(service, slices, family, self.config, self.node) if service else ()
            half.replace(key, ports)
        return half.settle()

    def _planned(self) -> Plan:
        return Plan(self._halves["IPv4"].plan, self._halves["IPv6"].plan)


def affected_services(change: AnyChange) -> Iterable[Key]:
    """The Services whose plans a change may affect."""
    for obj in (change.old, change.new):
        if isinstance(obj, Service):
            yield obj.key
        elif isinstance(obj, EndpointSlice) and obj.service_key:
            yield obj.service_key


class _Claim(NamedTuple):
    """A Service port's claim to a front. Claims are ordered: the first has the front."""

    rank: int
    name: PortName
    kind: FrontKind


_RANKS: Final = {
    kind: rank
    for rank, kind in enumerate(
        (FrontKind.CLUSTER_IP, FrontKind.LOAD_BALANCER_IP, FrontKind.EXTERNAL_IP, FrontKind.NODE_PORT)
    )
}


class _Half:
    """One family's plan with the claims to its fronts, so that a change costs what changes."""

    def __init__(self, start: FamilyPlan) -> None:
        self.plan = start
        self._ports: dict[PortName, PortPlan] = {}
        self._by_service: dict[Key, tuple[PortName, ...]] = {}
        self._claims: dict[FrontKey, list[_Claim]] = {}
        self._old_ports: dict[PortName, PortPlan | None] = {}
        self._changed_fronts: dict[FrontKey, None] = {}

    def replace(self, service: Key, ports: tuple[PortPlan, ...]) -> None:
        """Replace the Service's ports by these."""
        names = self._by_service.pop(service, ())
        new = {port.name: port for port in ports}
        if new:
            self._by_service[service] = tuple(new)
        for name in dict.fromkeys((*names, *new)):
            old, now = self._ports.get(name), new.get(name)
            if old == now:
                continue
            self._old_ports.setdefault(name, old)
            if old:
                del self._ports[name]
                self._unclaim(old)
            if now:
                self._ports[name] = now
                self._claim(now)

    def settle(self) -> Difference:
        """Make the plan of all replacements since the last call; the difference to the plan before."""
        if not self._old_ports:
            return Difference()
        before = self.plan
        fronts, cluster_ips = dict(before.fronts), dict(before.cluster_ips)
        changed: dict[FrontKey, tuple[Front | None, Front | None]] = {}
        for key in self._changed_fronts:
            old, new = before.fronts.get(key), self._winner(key)
            if old == new:
                continue
            changed[key] = old, new
            if new:
                fronts[key] = new
            else:
                del fronts[key]
            for front, step in ((old, -1), (new, 1)):
                if front and front.kind is FrontKind.CLUSTER_IP:
                    cluster_ips[key.address] = cluster_ips.get(key.address, 0) + step
            if not cluster_ips.get(key.address, 1):
                del cluster_ips[key.address]
        ports = {name: (old, self._ports.get(name)) for name, old in self._old_ports.items()}
        ports = {name: pair for name, pair in ports.items() if pair[0] != pair[1]}
        self.plan = replace(before, ports=dict(self._ports), fronts=fronts, cluster_ips=cluster_ips)
        self._old_ports, self._changed_fronts = {}, {}
        return Difference(changed, ports)

    def _claim(self, port: PortPlan) -> None:
        for key, kind in port.fronts:
            insort(self._claims.setdefault(key, []), _Claim(_RANKS[kind], port.name, kind))
            self._changed_fronts[key] = None

    def _unclaim(self, port: PortPlan) -> None:
        for key, kind in port.fronts:
            claims = self._claims[key]
            claims.remove(_Claim(_RANKS[kind], port.name, kind))
            if not claims:
                del self._claims[key]
            self._changed_fronts[key] = None

    def _winner(self, key: FrontKey) -> Front | None:
        claims = self._claims.get(key)
        return Front(key, claims[0].kind, self._ports[claims[0].name]) if claims else None
