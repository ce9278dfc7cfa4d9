"""The plan of a changing cluster: a change replaces the plans of the Services it affects and yields the difference.

A front goes to one of the claims to it (claims.py), and to the next when that one is gone. The result depends on the
state alone, so an updated plan equals a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kdns.cluster.objects import EndpointSlice, Key, Service
from kdns.cluster.state import Change, State
from kdns.net import FAMILIES, Family, parse_unmapped_address
from kdns.proxy.plan.claims import API_SERVICE, Claims
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey, FrontKind, Plan, PortName, PortPlan
from kdns.proxy.plan.service_ports import cluster_ips, empty_plan, is_proxied, plan_port, source_nat


@dataclass(frozen=True, slots=True)
class Difference:
    """The fronts and Service ports that differ between two plans of a family, before and after; None: absent."""

    fronts: Mapping[FrontKey, tuple[Front | None, Front | None]] = field(default_factory=dict)
    ports: Mapping[PortName, tuple[PortPlan | None, PortPlan | None]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.fronts or self.ports)


def plan(state: State, node: NodeView, config: ProxyConfig) -> Plan:
    return Planner(state, node, config).plan


class Planner:
    """The plan of a changing state. One event loop owns it.

    `plan` is one value whose maps change with each update; a `Difference` has what they had before.
    """

    def __init__(self, state: State, node: NodeView, config: ProxyConfig) -> None:
        self.state, self.node, self.config = state, node, config
        self._families = {family: _FamilyPlanner(empty_plan(family, config, node), config) for family in FAMILIES}
        self._nats = {family: source_nat(family, config) for family in FAMILIES}
        self.plan = Plan(self._families["IPv4"].plan, self._families["IPv6"].plan)
        self.update(state.services)

    def changed(self, changes: Iterable[Change]) -> dict[Family, Difference]:
        return self.update(dict.fromkeys(key for change in changes for key in affected_services(change)))

    def update(self, keys: Iterable[Key]) -> dict[Family, Difference]:
        for family_planner in self._families.values():
            family_planner.claims.protect_api_servers(self.state.slices_of(API_SERVICE))
        for key in keys:
            service, slices = self.state.services.get(key), self.state.slices_of(key)
            addresses = cluster_ips(service) if service and is_proxied(service) else {}
            for family, family_planner in self._families.items():
                ports: list[PortPlan] = []
                if service and (address := addresses.get(family)):
                    inputs = family, self.config, self.node, self._nats[family]
                    ports = [plan_port(service, port, address, slices, *inputs) for port in service.ports]
                family_planner.replace(key, ports)
        return {family: family_planner.settle() for family, family_planner in self._families.items()}


def affected_services(change: Change) -> Iterable[Key]:
    for obj in (change.old, change.new):
        if isinstance(obj, Service):
            yield obj.key
        elif isinstance(obj, EndpointSlice) and obj.service_key:
            yield obj.service_key


class _FamilyPlanner:
    """One family's plan with the claims to its fronts, so that a change costs what changes."""

    def __init__(self, start: FamilyPlan, config: ProxyConfig) -> None:
        self.plan, self.claims = start, Claims(start, config)
        self._by_service: dict[Key, tuple[PortName, ...]] = {}
        self._old_ports: dict[PortName, PortPlan | None] = {}

    def replace(self, service: Key, ports: Iterable[PortPlan]) -> None:
        names, new = self._by_service.pop(service, ()), {port.name: port for port in ports}
        if new:
            self._by_service[service] = tuple(new)
        for name in dict.fromkeys((*names, *new)):
            old, now = self.plan.ports.get(name), new.get(name)
            if old == now:
                continue
            self._old_ports.setdefault(name, old)
            if old:
                del self.plan.ports[name]
                self.plan.limited.pop(name, None)
                self.claims.remove(old)
            if now:
                self.plan.ports[name] = now
                self.claims.add(now)
                if now.limits:
                    self.plan.limited[name] = now

    def settle(self) -> Difference:
        """Brings the plan up to all replacements since the last call; returns the difference."""
        plan = self.plan
        self.claims.examine(plan.ports.values())
        changed: dict[FrontKey, tuple[Front | None, Front | None]] = {}
        for key in self.claims.changed:
            winner, refusals = self.claims.decision(key)
            if refusals:
                plan.refused[key] = refusals
            else:
                plan.refused.pop(key, None)
            plan.shadows.pop(key, None)
            if winner and (shadowed := self.claims.shadowed(key, winner)):
                plan.shadows[key] = shadowed
            old, new = plan.fronts.get(key), Front(key, winner.kind, plan.ports[winner.name]) if winner else None
            if old == new:
                continue
            changed[key] = old, new
            if new:
                plan.fronts[key] = new
            else:
                del plan.fronts[key]
            for front, step in ((old, -1), (new, 1)):
                if front and self._is_virtual(front):
                    plan.virtual_ips[key.address] = plan.virtual_ips.get(key.address, 0) + step
            if not plan.virtual_ips.get(key.address, 1):
                del plan.virtual_ips[key.address]
        ports = {name: (old, plan.ports.get(name)) for name, old in self._old_ports.items()}
        ports = {name: pair for name, pair in ports.items() if pair[0] != pair[1]}
        self._old_ports, self.claims.changed = {}, {}
        return Difference(changed, ports)

    def _is_virtual(self, front: Front) -> bool:
        """Returns whether no packet to the front's address is for anything but Services."""
        if not self.plan.mode.owns_addresses:
            return front.kind is FrontKind.CLUSTER_IP
        address = parse_unmapped_address(front.key.address)
        return address is not None and not self.plan.node.has(address)
