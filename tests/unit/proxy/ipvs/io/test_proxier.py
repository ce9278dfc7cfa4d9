"""The proxier of mode ipvs, against a kernel of the test."""

import asyncio
import errno
import re
import time
from collections.abc import Iterable
from itertools import groupby
from typing import cast

import pytest
from kernel_of_test import KernelOfTest, ProgramsOfTest, replace_kernel
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.cluster.objects import EndpointSlice, Object, Service
from kdns.cluster.state import Change
from kdns.errors import ApplyError
from kdns.net import parse_network
from kdns.netlink.ipvs import Destination, ServerOptions, VirtualServerKey
from kdns.proxy.ipvs.io import kernel, proxier
from kdns.proxy.ipvs.io.clean_up import IpvsPart
from kdns.proxy.ipvs.io.proxier import IpvsProxier
from kdns.proxy.ipvs.ipvs import IpvsOptions
from kdns.proxy.modes import MODES
from kdns.proxy.plan.planner import Planner
from kdns.proxy.xtables.io.clean_up import IptablesPart
from kdns.proxy.xtables.io.programs import Programs

WEB = VirtualServerKey("10.96.0.1", 80, "TCP")
DNS = VirtualServerKey("10.96.0.1", 80, "UDP")
ONE = Destination(1, 0, 0, masquerades=True)
P1, P2 = ("10.1.0.2", 8080), ("10.1.0.3", 8080)
R1 = ("10.1.1.2", 8080)


class Rig:
    """A proxier with a kernel and a cluster."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.kernel = KernelOfTest()
        self.programs = ProgramsOfTest(self.kernel)
        self.now_s = 0.0
        replace_kernel(patch, self.kernel, self.programs)
        self.proxier = self.made()

    def made(self, *excluded: str) -> IpvsProxier:
        networks = tuple(network for each in excluded if (network := parse_network(each)))
        options = IpvsOptions(excluded=networks)
        return IpvsProxier(cast("Programs", self.programs), options=options, now_s=lambda: self.now_s)

    async def load(self, *objects: tuple[Object, ...]) -> None:
        config = CONFIG.__class__(mode=MODES["ipvs"].semantics, local_pods=CONFIG.local_pods, node_port_addresses=())
        self.planner = Planner(state(*objects), NODE_VIEW, config)
        await self.proxier.sync_full(self.planner.plan)

    async def change(self, *objects: tuple[Object, ...]) -> None:
        changes = [self.planner.state.upsert(each) for obj in objects for each in obj]
        await self._follow(changes)

    async def delete(self, number: int) -> None:
        held = self.planner.state
        slices = [held.delete(EndpointSlice, ("shop", f"s{number}-ipv{which}")) for which in "46"]
        await self._follow([held.delete(Service, ("shop", f"s{number}")), *slices])

    async def _follow(self, changes: Iterable[Change | None]) -> None:
        differences = self.planner.changed([change for change in changes if change])
        await self.proxier.sync_partial(self.planner.plan, differences)

    def took(self) -> list[str]:
        """What was done since the last call, in words without repetitions."""
        words = [word for word, _ in groupby(self.kernel.done)]
        self.kernel.done.clear()
        return words

    def weights(self, key: VirtualServerKey = WEB) -> dict[tuple[str, int], int]:
        return {name: each.weight for name, each in self.kernel.held[key].items()}


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


async def test_a_load_goes_from_behind_to_the_front(rig: Rig) -> None:
    await rig.load(service(1, endpoints(1, "p1")))
    words = rig.took()
    assert words[0] == "entries"
    assert [word for word in words if word not in {"server", "destination"}] == ["entries", "address", "up", "restore"]
    assert rig.weights() == {P1: 1}
    assert {"10.96.0.1", "198.51.100.1", "198.51.101.1", "fd00:96::1"} <= rig.kernel.addresses
    assert "10.96.0.1,tcp:80" in rig.kernel.sets["KUBE-CLUSTER-IP"][1]
    assert "fd00:96::1,tcp:80" in rig.kernel.sets["KUBE-6-CLUSTER-IP"][1]
    await rig.proxier.sync_full(rig.planner.plan)
    assert rig.took() == ["restore"]


async def test_a_restart_leaves_what_is_right_and_removes_the_rest(rig: Rig) -> None:
    await rig.load(service(1, endpoints(1, "p1")), service(2, endpoints(2, "p2")))
    kernel = rig.kernel
    kernel.options |= {
        VirtualServerKey("10.99.0.1", 80, "TCP"): ServerOptions("rr"),
        VirtualServerKey("10.98.0.1", 80, "UDP"): ServerOptions("rr"),
    }
    kernel.held[WEB][P2] = Destination(1, 0, 0, masquerades=True)
    kernel.addresses.add("10.99.0.1")
    kernel.sets["KUBE-CLUSTER-IP"][1].add("10.99.0.1,tcp:80")
    rig.took()
    rig.proxier = rig.made("10.98.0.0/16")
    await rig.load(service(1, endpoints(1, "p1")), service(2, endpoints(2, "p2")))
    words = rig.took()
    assert words[0] == "destination"
    assert words[-1] == "unentries"
    assert rig.weights() == {P1: 1}
    assert {address for address, _, _ in kernel.options if address.startswith("10.9")} == {
        "10.96.0.1",
        "10.96.0.2",
        "10.98.0.1",
    }
    assert "10.99.0.1" not in kernel.addresses
    assert "10.99.0.1,tcp:80" not in kernel.sets["KUBE-CLUSTER-IP"][1]


async def test_a_change_is_no_more_than_it_is(rig: Rig) -> None:
    await rig.load(service(1, endpoints(1, "p1")), service(2, endpoints(2, "p1")))
    rig.took()
    rig.kernel.operations.clear()
    await rig.change(endpoints(1, "p1", "p2"))
    assert {operation.verb.name for operation in rig.kernel.operations} == {"NEW_DESTINATION"}
    assert "restore" not in rig.took()
    await rig.change(service(3, endpoints(3, "p2")))
    words = rig.took()
    assert words[0] == "entries"
    assert words.index("server") < words.index("address")
    await rig.delete(3)
    words = rig.took()
    assert words.index("unaddress") < words.index("unentries")
    assert not any(address.endswith((".3", "::3")) for address in rig.kernel.addresses)
    assert not any(key[0].endswith((".3", "::3")) for key in rig.kernel.options)


async def test_connections_keep_an_endpoint_and_a_service(rig: Rig) -> None:
    await rig.load(service(1, endpoints(1, "p1")))
    rig.kernel.connect(WEB, P1, 1)
    await rig.change(endpoints(1, "p2"))
    assert rig.weights() == {P1: 0, P2: 1}
    assert rig.weights(DNS) == {P2: 1}
    await rig.change(endpoints(1, "p1"))
    assert rig.weights() == {P1: 1}
    await rig.delete(1)
    assert rig.weights() == {P1: 0}
    assert rig.kernel.addresses == {"10.96.0.1"}
    assert set(rig.kernel.options) == {WEB}
    await rig.change(service(1, endpoints(1, "p1")))
    assert rig.weights() == {P1: 1}


async def test_a_service_that_the_kernel_does_not_take_is_named_and_the_rest_is_served(rig: Rig) -> None:
    rig.kernel.refuses = {P2[0]: errno.EINVAL}
    await rig.load(service(1, endpoints(1, "p1", "p2")), service(2, endpoints(2, "p1")))
    assert rig.weights() == {P1: 1}
    assert rig.proxier.rejected.keys() == {("shop", "s1")}
    assert "new destination 10.1.0.3:8080 of " in rig.proxier.rejected["shop", "s1"]
    await rig.change(endpoints(1, "p1", "p2", "r1"))  # it is tried again, and refused again
    assert rig.weights() == {P1: 1, R1: 1}
    assert rig.proxier.rejected.keys() == {("shop", "s1")}
    await rig.change(endpoints(1, "p1"))
    assert rig.proxier.rejected == {}
    rig.kernel.refuses.clear()
    await rig.change(endpoints(1, "p1", "p2"))
    assert rig.weights() == {P1: 1, P2: 1}


async def test_a_virtual_server_that_the_kernel_does_not_take_is_tried_again_with_each_change(rig: Rig) -> None:
    rig.kernel.refuses = {str(WEB): errno.EPROTONOSUPPORT}
    await rig.load(service(1, endpoints(1, "p1")), service(2, endpoints(2, "p1")))
    assert WEB not in rig.kernel.held
    assert rig.proxier.rejected.keys() == {("shop", "s1")}
    await rig.change(endpoints(1, "p2"))
    assert rig.proxier.rejected.keys() == {("shop", "s1")}
    rig.kernel.refuses.clear()
    await rig.change(endpoints(1, "p1"))
    assert rig.weights() == {P1: 1}
    assert rig.proxier.rejected == {}
    rig.kernel.refuses = {"10.96.0.2:80/TCP": errno.EPROTONOSUPPORT}
    await rig.proxier.sync_full(rig.planner.plan)
    assert rig.proxier.rejected == {}  # it is there
    await rig.delete(2)
    assert rig.proxier.rejected == {}


async def test_an_address_that_the_kernel_does_not_take_is_named(rig: Rig) -> None:
    rig.kernel.refuses = {"198.51.100.1": errno.EINVAL}
    await rig.load(service(1, endpoints(1, "p1")))
    assert rig.proxier.rejected == {("shop", "s1"): "address 198.51.100.1: Invalid argument"}
    assert "10.96.0.1" in rig.kernel.addresses


@pytest.mark.parametrize("may_be_set", [True, False])
async def test_where_ipv6_is_off_the_link_gets_it_or_the_rest_is_served(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, *, may_be_set: bool
) -> None:
    rig.kernel.is_ipv6_off = True

    def set_sysctl(name: str, value: int) -> tuple[bool, str]:
        assert (name, value) == ("net/ipv6/conf/kube-ipvs0/disable_ipv6", 0)
        rig.kernel.is_ipv6_off = not may_be_set
        return may_be_set, "" if may_be_set else "Read-only file system"

    monkeypatch.setattr(kernel, "set_sysctl", set_sysctl)
    await rig.load(service(1, endpoints(1, "p1")))
    await rig.change(service(2, endpoints(2, "p1")))
    assert bool({"fd00:96::1", "fd00:96::2"} <= rig.kernel.addresses) == may_be_set
    assert {"10.96.0.1", "10.96.0.2"} <= rig.kernel.addresses
    assert not rig.proxier.rejected
    assert not rig.proxier._look_at_addresses()  # noqa: SLF001 - it is no change by others either


async def test_what_somebody_deleted_is_no_ones_fault(rig: Rig) -> None:
    await rig.load(service(1, endpoints(1, "p1")))
    rig.kernel.options.clear()
    rig.kernel.held.clear()
    with pytest.raises(ApplyError, match=r"new destination .*: No such process"):
        await rig.change(endpoints(1, "p1", "p2"))
    assert not rig.proxier.rejected
    await rig.proxier.sync_full(rig.planner.plan)
    assert rig.weights() == {P1: 1, P2: 1}


async def test_rules_that_fail_leave_everything_for_the_next_time(rig: Rig) -> None:
    rig.programs.is_broken = True
    with pytest.raises(ApplyError, match="broken"):
        await rig.load(service(1, endpoints(1, "p1")))
    rig.programs.is_broken = False
    await rig.proxier.sync_full(rig.planner.plan)
    assert "KUBE-SERVICES" in rig.programs.content["IPv4", "nat"].rules


async def test_jumps_are_inserted_once_and_beside_those_of_others(rig: Rig) -> None:
    await rig.load(service(1, endpoints(1, "p1")))
    assert ("PREROUTING", "KUBE-SERVICES") in rig.programs.content["IPv4", "nat"].jumps
    count = len(rig.programs.restores)
    rig.proxier = rig.made()
    await rig.load(service(1, endpoints(1, "p1")))
    assert len(rig.programs.restores) == count + 2
    assert not any("-I " in text for _, text in rig.programs.restores[count:])
    rig.programs.inserted = [(*at, rule.replace("portals", "of another mode")) for *at, rule in rig.programs.inserted]  # type: ignore[misc]
    rig.proxier = rig.made()
    await rig.load(service(1, endpoints(1, "p1")))
    inserted = [line.split()[1] for _, text in rig.programs.restores for line in text.splitlines() if "-I " in line]
    assert inserted[-2:] == ["OUTPUT", "PREROUTING"]


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda rig: rig.kernel.options.clear(), "virtual server .* is gone"),
        (lambda rig: rig.kernel.held[WEB].clear(), "virtual server 10.96.0.1:80/TCP does not have 10.1.0.2:8080"),
        (lambda rig: rig.kernel.held[WEB].update({P2: ONE}), "10.96.0.1:80/TCP has 10.1.0.3:8080, which is none of"),
        (lambda rig: rig.kernel.held[WEB].update({P1: ONE._replace(masquerades=False)}), "does not have 10.1.0.2:8080"),
        (lambda rig: rig.kernel.options.update({WEB: ServerOptions("lc")}), "other settings"),
        (lambda rig: setattr(rig.kernel, "is_up", False), "link kube-ipvs0 is gone or down"),
        (lambda rig: rig.kernel.addresses.discard("10.96.0.1"), "address 10.96.0.1 of kube-ipvs0 is gone"),
        (lambda rig: rig.kernel.sets["KUBE-IPVS-IPS"][1].clear(), "set KUBE-IPVS-IPS has 0 entries, not 3"),
        (lambda rig: rig.programs.content["IPv6", "nat"].rules.clear(), "IPv6 no nat KUBE-SERVICES"),
        (lambda rig: rig.programs.content["IPv4", "filter"].jumps.clear(), "IPv4 filter FORWARD does not lead to"),
    ],
)
async def test_changes_by_others_are_noticed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, break_it: object, said: str
) -> None:
    for name in ("POLL_S", "MAX_PAUSE_S"):
        monkeypatch.setattr(proxier, name, 0.001)
    monkeypatch.setattr(proxier, "BACKOFF_FACTOR", 0.0)
    await rig.load(service(1, endpoints(1, "p1")))
    heard: asyncio.Queue[str] = asyncio.Queue()
    with rig.proxier.watch(heard.put_nowait):
        break_it(rig)  # type: ignore[operator]
        async with asyncio.timeout(60):
            assert re.search(said, await heard.get())


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.001, 2.0), (0.02, 4.0), (1.0, 10.0)])
async def test_comparisons_take_little_of_the_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, took_s: float, pause_s: float
) -> None:
    await rig.load(service(1, endpoints(1, "p1")))
    times = iter((5.0, 5.0 + took_s))
    monkeypatch.setattr(time, "thread_time", lambda: next(times))
    rig.kernel.is_up = False
    assert await rig.proxier.difference()
    assert rig.proxier.pause_s == pytest.approx(pause_s)


async def test_drained_destinations_are_deleted_meanwhile(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxier, "POLL_S", 0.001)
    monkeypatch.setattr(proxier, "BACKOFF_FACTOR", 0.0)
    monkeypatch.setattr(proxier, "CHECK_S", 0.0)
    await rig.load(service(1, endpoints(1, "p1")))
    rig.kernel.connect(WEB, P1, 1)
    await rig.change(endpoints(1, "p2"))
    with rig.proxier.watch(pytest.fail):
        rig.kernel.connect(WEB, P1, 0)
        async with asyncio.timeout(60):
            while P1 in rig.kernel.held[WEB]:  # noqa: ASYNC110 - the kernel of the test tells nobody
                await asyncio.sleep(0.001)


def test_the_footprint_has_the_chains_of_the_mode(rig: Rig) -> None:
    part = rig.proxier.footprint.part(IptablesPart)
    assert part
    assert rig.proxier.footprint.part(IpvsPart)
    assert part.keeps("filter", "KUBE-IPVS-FILTER")
    assert not part.keeps("nat", "KUBE-SVC-0123456789ABCDEF")
    assert ("IPv6", "nat", "PREROUTING") in {jump[:3] for jump in part.jumps}
