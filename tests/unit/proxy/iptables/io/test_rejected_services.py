"""Mode iptables leaves out the Services that the kernel rejects, and serves all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise, repeat
from typing import cast

import pytest
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.cluster.objects import Key, Object, Service
from kdns.errors import ApplyError, BusyError
from kdns.net import FAMILIES, Family
from kdns.netlink.io import xtables
from kdns.proxy.iptables import rejections
from kdns.proxy.iptables.io.programs import Programs
from kdns.proxy.iptables.io.proxier import IptablesProxier
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.iptables.rules import Jump
from kdns.proxy.plan.config import ProxyConfig
from kdns.proxy.plan.planner import Planner

IN_MODE = ProxyConfig(IPTABLES, local_pods=CONFIG.local_pods)


class PoisonedPrograms:
    """Programs of a kernel that takes no rules with some words. `restored` are the restores that it took."""

    backend = "nft"

    def __init__(self) -> None:
        self.poison: set[str] = set()
        self.is_busy = False
        self.restored: list[str] = []
        self.checks = 0

    def _refuse(self, text: str) -> None:
        if self.is_busy:
            raise BusyError(("iptables-restore",), "another program holds the lock")
        if bad := sorted(word for word in self.poison if word in text):
            raise ApplyError(("iptables-restore",), f"bad: {', '.join(bad)}")

    async def restore(self, family: Family, text: str) -> None:
        del family
        self._refuse(text)
        self.restored.append(text)

    async def check(self, family: Family, text: str) -> str:
        del family
        self.checks += 1
        try:
            self._refuse(text)
        except BusyError:
            raise
        except ApplyError as error:
            return error.stderr
        return ""

    async def rules(self, family: Family, table: str, chain: str) -> list[str]:
        del family, table, chain
        return []

    async def has(self, family: Family, jump: Jump) -> bool:
        del family, jump
        return True


class Rig:
    """A proxier in IPv4, and a cluster."""

    def __init__(self) -> None:
        self.programs = PoisonedPrograms()
        self.clock_s: Iterator[float] = repeat(0.0)
        programs = cast("Programs", self.programs)
        self.proxier = IptablesProxier(programs, FAMILIES[:1], now_s=lambda: next(self.clock_s))

    async def load(self, numbers: range) -> None:
        self.state = state(*(service(number, endpoints(number, "p1")) for number in numbers))
        await self.sync()

    async def sync(self) -> None:
        self.programs.restored.clear()
        self.planner = Planner(self.state, NODE_VIEW, IN_MODE)
        await self.proxier.sync_full(self.planner.plan)

    async def change(self, *objects: tuple[Object, ...]) -> None:
        self.programs.restored.clear()
        changes = [change for some in objects for each in some if (change := self.state.upsert(each))]
        await self.proxier.sync_partial(self.planner.plan, self.planner.changed(changes))

    def served(self, text: str = "") -> set[int]:
        """The Services with rules in the last restore."""
        text = text or self.programs.restored[-1]
        return {number for number in range(1, 20) if f"10.96.0.{number}/32" in text}


def key(number: int) -> Key:
    return "shop", f"s{number}"


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(xtables, "chains_by_table", lambda *_: {})
    return Rig()


async def test_they_are_left_out_until_they_change(rig: Rig) -> None:
    rig.programs.poison = {"10.96.0.3/32", "10.96.0.7/32"}
    await rig.load(range(1, 10))
    assert rig.served() == {1, 2, 4, 5, 6, 8, 9}
    assert rig.proxier.rejected == {key(number): f"bad: 10.96.0.{number}/32" for number in (3, 7)}

    rig.programs.checks = 0
    await rig.change(service(10, endpoints(10, "p1")))  # which asks about no other
    assert rig.served() == {10}
    assert rig.programs.checks == 0
    await rig.change(endpoints(3, "p2"), service(11, endpoints(11, "p1")))
    assert rig.served() == {11}
    assert rig.programs.checks == 1
    assert rig.proxier.rejected.keys() == {key(3), key(7)}

    rig.programs.poison = {"10.96.0.7/32"}
    await rig.change(endpoints(3, "p1"))
    assert rig.served() == set(range(1, 12)) - {7}
    assert rig.proxier.rejected.keys() == {key(7)}

    deleted = rig.state.delete(Service, key(7))
    assert deleted
    await rig.proxier.sync_partial(rig.planner.plan, rig.planner.changed([deleted]))
    assert rig.proxier.rejected == {}


async def test_a_full_sync_tries_them_again(rig: Rig) -> None:
    rig.programs.poison = {"10.96.0.2/32"}
    await rig.load(range(1, 4))
    assert rig.served() == {1, 3}
    rig.programs.poison.clear()
    await rig.sync()
    assert rig.served() == {1, 2, 3}
    assert rig.proxier.rejected == {}


async def test_a_change_that_the_kernel_rejects_fails_and_the_full_sync_after_it_finds_the_service(rig: Rig) -> None:
    await rig.load(range(1, 4))
    rig.programs.poison = {"10.96.0.4/32"}
    with pytest.raises(ApplyError, match=r"bad: 10\.96\.0\.4"):
        await rig.change(service(4, endpoints(4, "p1")), service(5, endpoints(5, "p1")))
    await rig.sync()
    assert rig.served() == {1, 2, 3, 5}
    assert rig.proxier.rejected.keys() == {key(4)}


def is_busy(programs: PoisonedPrograms) -> None:
    programs.is_busy = True


def rejects_all(programs: PoisonedPrograms) -> None:
    programs.poison = {"COMMIT"}


def rejects_each(programs: PoisonedPrograms) -> None:
    programs.poison = {f"10.96.0.{number}/32" for number in (1, 2, 3)}


@pytest.mark.parametrize(
    ("spoil", "checks"),
    [(is_busy, 0), (rejects_all, 1), (rejects_each, 1 + 5)],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_what_is_not_of_some_services_leaves_none_out(
    rig: Rig, spoil: Callable[[PoisonedPrograms], None], checks: int
) -> None:
    spoil(rig.programs)
    with pytest.raises(ApplyError):
        await rig.load(range(1, 4))
    assert rig.proxier.rejected == {}
    assert rig.programs.restored == []
    assert rig.programs.checks == checks


async def test_accepted_services_are_served_while_others_are_checked(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejections, "MAX_GROUP", 4)
    rig.clock_s = iter(range(1000))
    rig.programs.poison = {f"10.96.0.{number}/32" for number in (3, 6, 9, 12, 15, 18)}
    await rig.load(range(1, 20))
    served = [rig.served(text) for text in rig.programs.restored if "KUBE-SVC" in text]
    good = set(range(1, 20)) - {3, 6, 9, 12, 15, 18}
    assert served[-1] == good
    assert 0 < len(served[0]) < len(good)
    assert all(before <= after for before, after in pairwise(served))
