"""Which Services the kernel rejects rules of: found by bisection, and left out, so that all others are served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from kdns.cluster.objects import Key
from kdns.net import Family
from kdns.proxy.plan.plan import FamilyPlan, Front, Plan
from kdns.proxy.plan.planner import Difference

MAX_GROUP: Final = 256
"""Services that are checked together at most. So a Service is checked nine times at most."""

Check: TypeAlias = Callable[[Sequence[Key]], Awaitable[str]]
"""Why the kernel would reject a plan of these Services and no others, "" if it would not."""


class Decisions(NamedTuple):
    """The Services that the kernel would accept, and those that it rejects, each with the reason."""

    accepted: list[Key]
    rejected: dict[Key, str]


class RejectionSearch:
    """Services that are suspected, until it is decided which of them the kernel rejects.

    The smaller group is checked first, so that the first Services are accepted after a few checks.
    """

    def __init__(self, suspects: Sequence[Key]) -> None:
        self._groups = [suspects[start : start + MAX_GROUP] for start in range(0, len(suspects), MAX_GROUP)]

    @property
    def undecided(self) -> set[Key]:
        return set(chain.from_iterable(self._groups))

    async def decide(self, check: Check, is_over: Callable[[], bool]) -> Decisions:
        """Checks until everything is decided or `is_over`; the decisions since the call before."""
        accepted: list[Key] = []
        rejected: dict[Key, str] = {}
        while self._groups and not is_over():
            group = self._groups[-1]
            reason = await check(group)
            self._groups.pop()
            if not reason:
                accepted += group
            elif len(group) == 1:
                rejected[group[0]] = reason
            else:
                middle = len(group) // 2
                self._groups += [group[middle:], group[:middle]]
        return Decisions(accepted, rejected)


def planned_services(plan: Plan) -> list[Key]:
    return list(dict.fromkeys(name[:2] for name in (*plan.ipv4.ports, *plan.ipv6.ports)))


def plan_of(plan: Plan, services: Container[Key]) -> Plan:
    def of_family(whole: FamilyPlan) -> FamilyPlan:
        ports = {name: port for name, port in whole.ports.items() if name[:2] in services}
        fronts = {key: front for key, front in whole.fronts.items() if front.port.name[:2] in services}
        return replace(whole, ports=ports, fronts=fronts)

    return Plan(of_family(plan.ipv4), of_family(plan.ipv6))


def plan_without(plan: Plan, services: Iterable[Key]) -> Plan:
    return plan_of(plan, set(planned_services(plan)).difference(services))


def differences_without(differences: Mapping[Family, Difference], services: Container[Key]) -> dict[Family, Difference]:
    """Returns the differences between two plans that have these Services left out."""

    def front(one: Front | None) -> Front | None:
        return None if one is None or one.port.name[:2] in services else one

    def of_family(difference: Difference) -> Difference:
        fronts = {key: (front(old), front(new)) for key, (old, new) in difference.fronts.items()}
        ports = {name: pair for name, pair in difference.ports.items() if name[:2] not in services}
        return Difference({key: pair for key, pair in fronts.items() if any(pair)}, ports)

    return {family: of_family(difference) for family, difference in differences.items()}
