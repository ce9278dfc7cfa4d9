"""A plan as parts of the page: what is planned, and what Services do not get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kdns.cluster.objects import Key
from kdns.net import FAMILIES
from kdns.proxy.plan.plan import Plan
from kdns.status.page import Advice, Section, Table

SHOWN = 50
"""The most rows of a table."""


def plan_section(plan: Plan) -> Section:
    rows = []
    for family in FAMILIES:
        of_family = plan.of(family)
        endpoints = {endpoint for port in of_family.ports.values() for endpoint in port.endpoints.cluster}
        services = {(name.namespace, name.service) for name in of_family.ports}
        counts = len(services), len(of_family.ports), len(of_family.fronts), len(endpoints)
        rows.append((family, *(f"{count:,}" for count in counts)))
    heads = ("Family", "Services", "Service ports", "Addresses and node ports", "Endpoints")
    return Section("Plan", tables=(Table("What is planned for this node", heads, rows),))


def refused_section(plan: Plan, rejected: Mapping[Key, str]) -> Section:
    rows = [("/".join(key), "rules that the kernel rejects", reason) for key, reason in rejected.items()]
    rows += [("/".join(key), what, reason) for (key, what), reason in plan.refusals.items()]
    more = [("…", "", f"and {len(rows) - SHOWN} more")] if len(rows) > SHOWN else []
    table = Table(
        "What Services do not get",
        ("Service", "What", "Why"),
        [*rows[:SHOWN], *more],
        "Every Service has what it asks for.",
    )
    return Section("Refused", tables=(table, _warnings(plan)))


def running_advice(plan: Plan, rejected: Mapping[Key, str], foreign_changes: int) -> Iterator[Advice]:
    """What a node knows of its Services: what they do not get there, and who changed its rules."""
    for key, why in rejected.items():
        yield Advice(f"The kernel rejects rules of Service {'/'.join(key)}: {why}")
    for (key, what), why in plan.refusals.items():
        yield Advice(f"Service {'/'.join(key)} does not get {what}: {why}")
    if foreign_changes:
        yield Advice(f"Another program changed the rules {foreign_changes} times.", "stop other proxies on this node")


def _warnings(plan: Plan) -> Table:
    rows = [("/".join(key), text) for key, text in plan.limits]
    more = [("…", f"and {len(rows) - SHOWN} more")] if len(rows) > SHOWN else []
    return Table("Warnings about Services", ("Service", "What"), [*rows[:SHOWN], *more], "There are none.")
