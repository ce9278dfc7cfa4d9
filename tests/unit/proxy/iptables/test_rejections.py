"""The search for Services that the kernel rejects, and plans and differences without them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.cluster.objects import Key, Service
from kdns.net import FAMILIES
from kdns.proxy.iptables.rejections import (
    RejectionSearch,
    differences_without,
    plan_of,
    plan_without,
    planned_services,
)
from kdns.proxy.plan.plan import FrontKey
from kdns.proxy.plan.planner import Planner

S1, S2, S3 = (("shop", f"s{number}") for number in (1, 2, 3))


@pytest.mark.parametrize("slices", [1, 7])
@pytest.mark.parametrize(
    ("bad", "checks"),
    [((), 4), ((5,), 20), (range(0, 1000, 100), 160), (range(0, 1000, 10), 1000), (range(1000), 2000)],
)
async def test_rejected_services_are_found_by_halves(bad: Iterable[int], checks: int, slices: int) -> None:
    """Also where the search is interrupted after so many checks. The first are accepted after a few."""
    suspects, checked = [("d", str(number)) for number in range(1000)], 0
    wanted = {("d", str(number)) for number in bad}
    accepted, rejected = list[Key](), dict[Key, str]()
    first_accepted = 0

    async def check(keys: Sequence[Key]) -> str:
        nonlocal checked, first_accepted
        checked += 1
        is_bad = bool(wanted & set(keys))
        if not is_bad and not first_accepted:
            first_accepted = checked
        return "bad" if is_bad else ""

    search = RejectionSearch(suspects)
    while undecided := search.undecided:
        assert undecided | rejected.keys() | set(accepted) == set(suspects)
        until = checked + slices
        decisions = await search.decide(check, lambda until=until: checked >= until)  # type: ignore[misc]
        accepted += decisions.accepted
        rejected |= decisions.rejected
    assert rejected == dict.fromkeys(wanted, "bad")
    assert sorted(accepted) == sorted(set(suspects) - wanted)
    assert checked <= checks
    assert first_accepted <= 10


def test_a_plan_of_some_services_has_their_ports_and_fronts_alone() -> None:
    known = state(*(service(number, endpoints(number, "p1")) for number in (1, 2, 3)))
    whole = Planner(known, NODE_VIEW, CONFIG).plan
    assert set(planned_services(whole)) == {S1, S2, S3}
    for part, services in ((plan_of(whole, {S2}), {S2}), (plan_without(whole, {S1}), {S2, S3})):
        for family in FAMILIES:
            of_family, of_whole = part.of(family), whole.of(family)
            assert {name[:2] for name in of_family.ports} == services
            fronts = {key: one for key, one in of_whole.fronts.items() if one.port.name[:2] in services}
            assert of_family.fronts == fronts


def test_differences_lack_the_services_and_what_they_have_given_up() -> None:
    """An external IP that a rejected Service loses is new for the Service that gets it."""
    known = state(*(service(number, endpoints(number, "p1"), externalIPs=["198.51.100.9"]) for number in (1, 2)))
    planner = Planner(known, NODE_VIEW, CONFIG)
    front = planner.plan.ipv4.fronts[FrontKey("198.51.100.9", "TCP", 80)]
    winner, other = (S1, S2) if front.port.name[:2] == S1 else (S2, S1)
    deleted = known.delete(Service, winner)
    assert deleted
    differences = planner.changed([deleted])
    difference = differences_without(differences, {winner})["IPv4"]
    assert not difference.ports
    assert {(old, new.port.name[:2] if new else None) for old, new in difference.fronts.values()} == {(None, other)}
    assert not any(differences_without(differences, {winner, other}).values())
