"""The plan of what is captured for relays: a node's plan with relays in place of endpoints.

A renderer makes rules of it as of any other plan. Each front has a Service port of its own, since each has relays of
its own. Nothing is masqueraded: a relay is to see its client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from kdns.net import FAMILIES, Address, Family, is_loopback
from kdns.proxy.plan.branches import Branches, Verdict
from kdns.proxy.plan.endpoints import EndpointLists, ServiceEndpoint
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey, Plan, PortName, PortPlan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.userspace.relays import RelayKey, relay_keys


class Capture:
    """What is captured by a plan, which it follows. One event loop owns it.

    `plan` is one value whose maps change with each difference. Packets go to the relays' `ports` at the node's
    addresses `to`. A front that lacks one of its relays is left out; `ports` may change for fronts that differ.
    """

    def __init__(self, plan: Plan, ports: Mapping[RelayKey, int], to: Mapping[Family, Address]) -> None:
        self._families = {family: _FamilyCapture(plan.of(family), ports, to[family]) for family in FAMILIES}
        self.plan = Plan(self._families["IPv4"].plan, self._families["IPv6"].plan)

    def follow(self, differences: Mapping[Family, Difference]) -> dict[Family, Difference]:
        """Takes over the differences of the node's plan; returns those of `plan`, none where only endpoints differ."""
        return {family: self._families[family].follow(difference) for family, difference in differences.items()}


class _FamilyCapture:
    """One family's part of a capture."""

    def __init__(self, family_plan: FamilyPlan, ports: Mapping[RelayKey, int], to: Address) -> None:
        self._relay_ports, self._to = ports, str(to)
        self.plan = replace(
            family_plan,
            fronts={},
            ports={},
            cluster_ip=_unmasqueraded(family_plan.cluster_ip),
            external_local=_unmasqueraded(family_plan.external_local),
        )
        self.follow(Difference({key: (None, front) for key, front in family_plan.fronts.items()}))

    def follow(self, difference: Difference) -> Difference:
        fronts: dict[FrontKey, tuple[Front | None, Front | None]] = {}
        ports: dict[PortName, tuple[PortPlan | None, PortPlan | None]] = {}
        for key, (_, front) in difference.fronts.items():
            old, new = self.plan.fronts.get(key), self._captured(front) if front else None
            if old == new:
                continue
            fronts[key] = old, new
            if old:
                del self.plan.fronts[key], self.plan.ports[old.port.name]
                ports[old.port.name] = old.port, None
            if new:
                self.plan.fronts[key] = new
                self.plan.ports[new.port.name] = new.port
                ports[new.port.name] = ports.get(new.port.name, (None, None))[0], new.port
        return Difference(fronts, ports)

    def _captured(self, front: Front) -> Front | None:
        keys = relay_keys(self.plan.family, front, captures=True)
        if is_loopback(front.key.address) or not all(key in self._relay_ports for key in keys):
            return None
        relays = {key.endpoint_set: (ServiceEndpoint(self._to, self._relay_ports[key], is_local=True),) for key in keys}
        branches = _unmasqueraded(front.branches)
        port = PortPlan(
            front.port.name._replace(port=str(front.key)),
            *(branches, branches, branches),
            EndpointLists(relays.get(Verdict.CLUSTER, ()), relays.get(Verdict.LOCAL, ()), has_any=bool(relays)),
            ((front.key, front.kind),),
            front.source_ranges,
        )
        return Front(front.key, front.kind, port)


@cache
def _unmasqueraded(branches: Branches) -> Branches:
    return Branches(replace(branch, masquerade=False) for branch in branches)
