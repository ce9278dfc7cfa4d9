"""Relays while Services change: what opens, what closes, what goes on, and what is said when something cannot be."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from itertools import chain
from pathlib import Path
from typing import NoReturn

import pytest
from fake_modes import FakeMode
from relay_rig import DEADLINE_S, VIP, echo, endpoints, free_port, heard, rig, saying, served, service, until

from kdns.cluster.objects import Service, ServiceMeta, ServicePort, ServiceSpec
from kdns.net import Family
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.sync.io.proxier import Counters, Footprint
from kdns.proxy.userspace.io import relay_set
from kdns.proxy.userspace.io.counters import RelayCounters
from kdns.proxy.userspace.io.tcp_relay import TcpRelay
from kdns.proxy.userspace.io.udp_relay import UdpRelay


async def test_what_is_under_way_goes_on_while_endpoints_and_services_go() -> None:
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(served(echo, "127.1.0.1"))
        new = await stack.enter_async_context(served(saying("new"), "127.1.0.2"))
        made, port = await stack.enter_async_context(rig()), free_port()
        await made.have(service("web", port), old)
        reader, writer = await asyncio.open_connection(VIP, port)

        async def still_goes_on() -> bool:
            writer.write(b"x")
            return await asyncio.wait_for(reader.readexactly(1), DEADLINE_S) == b"x"

        assert await still_goes_on()
        await made.have(service("web", port), new)
        assert await heard(port) == "new"
        assert await still_goes_on()
        await made.have(service("web", port))
        assert await heard(port) == "ConnectionRefusedError"
        assert await still_goes_on()
        await made.have(service("web", port), new)
        assert await heard(port) == "new"
        await made.forget("web")
        assert await heard(port) == "ConnectionRefusedError"
        assert await still_goes_on()
        assert not made.mode.listening
        assert not made.mode.counters.by_port
        writer.close()


async def test_a_listener_stays_through_changes_that_do_not_concern_it() -> None:
    """Nobody in its queue is lost."""
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(served(saying(name))) for name in ("one", "two")]
        made, port = await stack.enter_async_context(rig()), free_port()
        await made.have(service("web", port), one)

        async def asks() -> list[str]:
            return [await heard(port) for _ in range(100)]

        asking = asyncio.create_task(asks())
        for number in range(40):
            await made.have(service("web", port), two if number % 2 else one)
            await made.have(service("other", free_port("127.96.0.2"), vip="127.96.0.2"), one)
            assert made.planner
            await made.mode.sync_full(made.planner.plan)
        assert set(await asking) <= {"one", "two"}


async def test_source_ranges_guard_the_load_balancers_address() -> None:
    async with rig() as made, served(saying("hi")) as pair:
        port, lb_ip = free_port("127.96.0.9"), "127.96.0.9"
        web = service("web", port, lb_ip=lb_ip, load_balancer_source_ranges=("127.0.0.8/31",))
        await made.have(web, pair)
        assert await heard(port, lb_ip, source="127.0.0.9") == "hi"
        assert await heard(port, lb_ip, source="127.0.0.7") == ""  # ended without a word
        assert await heard(port, VIP, source="127.0.0.7") == "hi"
        assert made.counters("web").refused == 1


async def test_node_ports_are_at_the_nodes_addresses() -> None:
    async with rig() as made, served(saying("hi")) as pair:
        port, node_port = free_port(), free_port("0.0.0.0")
        web = Service(
            ServiceMeta("web", "shop"),
            ServiceSpec(type="NodePort", cluster_ip=VIP, ports=(ServicePort(port, "p", "TCP", node_port),)),
        )
        await made.have(web, pair)
        assert [await heard(node_port, each) for each in ("127.0.0.1", "127.0.0.2")] == ["hi", "hi"]
        assert await heard(port) == "hi"


async def test_what_cannot_be_is_told_once_and_tried_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdns.proxy.userspace.io.proxier.UPKEEP_S", 0.02)
    async with rig() as made, served(saying("hi")) as pair:
        port = free_port()
        with socket.socket() as somebody:
            somebody.bind((VIP, port))
            somebody.listen()
            await made.have(service("web", port), pair)
            await made.have(service("far", 80, vip="192.0.2.77"), pair)
        await until(lambda: len(made.mode.missing) == 1)
        assert await heard(port) == "hi"
    said = capsys.readouterr().out
    for what in (
        f"shop/web:p at {VIP}:{port}/tcp",
        "Address already in use",
        "shop/far:p at 192.0.2.77:80/tcp",
        "Cannot assign requested address",
        "to capture packets to addresses of others takes the capability NET_ADMIN",
    ):
        assert said.count(what) == 1, said


UNPRIVILEGED = """
import asyncio, sys
sys.path.insert(0, {folder!r})
from relay_rig import heard, rig, saying, served, service, VIP, free_port

async def main():
    async with rig(**{{}}) as made, served(saying("hi")) as pair:
        port = free_port("127.96.0.2")
        await made.have(service("low", 80), pair)
        await made.have(service("high", port, vip="127.96.0.2"), pair)
        print(await heard(80), await heard(port, "127.96.0.2"))

asyncio.run(main())
"""


def test_low_ports_need_a_privilege_and_the_others_are_served() -> None:
    if Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text().strip() != "1024":
        pytest.skip("anybody may have low ports here")
    script = UNPRIVILEGED.format(folder=str(Path(__file__).parent))
    drop = ["setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service"]
    drop = drop if os.geteuid() == 0 else []  # others do not have it
    done = subprocess.run(
        [*drop, sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert "ConnectionRefusedError hi" in done.stdout, done.stdout + done.stderr
    for wanted in ("shop/low:p at 127.96.0.1:80/tcp", "ports below 1024 need the capability NET_BIND_SERVICE"):
        assert done.stdout.count(wanted) + done.stderr.count(wanted) == 1, done.stdout + done.stderr


def test_endpoints_are_slices_of_their_own() -> None:
    """The rig's, so that each may have a port of its own."""
    assert len({endpoint.key for endpoint in endpoints("web", "TCP", ("127.1.0.1", 1), ("127.1.0.2", 2))}) == 2


class Rules(FakeMode):
    """A mode of the kernel that notes the plans which it gets."""

    plan: Plan

    @property
    def counters(self) -> Counters:
        return RelayCounters({}, None)

    async def sync_full(self, plan: Plan) -> None:
        self.plan = plan
        self.done.append("full")

    async def sync_partial(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        assert any(differences.values())
        self.plan = plan
        self.done.append("partial")

    @property
    def relays(self) -> list[tuple[str, int]]:
        """Where captured packets go."""
        ends = (front.port.endpoints.reachable for front in self.plan.ipv4.fronts.values())
        return [(each.address, each.port) for each in chain.from_iterable(ends)]


def forbidden(*_: object) -> NoReturn:
    raise AssertionError("a relay opens or closes")


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
async def test_a_change_of_endpoints_changes_no_rule_and_no_relay(
    monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """Only the plan by which relays choose."""
    rules = Rules("nftables", [], Footprint())
    async with rig(kernel=rules) as made, served(saying("one")) as one, served(saying("two"), "127.1.0.2") as two:
        web = service("web", 80, protocol, vip="10.96.0.1")
        await made.have(web, one)
        (relay,) = rules.relays
        assert rules.done == ["full"]
        with monkeypatch.context() as patched:
            for place, name in ((relay_set, "listener"), (TcpRelay, "close"), (UdpRelay, "close")):
                patched.setattr(place, name, forbidden)
            for ends in ([two], [one, two], [one], [two]):
                await made.have(web, *ends)
                await made.mode.sweep()
                assert (rules.done, rules.relays) == (["full"], [relay])
        if protocol == "TCP":
            assert await heard(relay[1], relay[0]) == "two"
        await made.have(web)
        assert (rules.done, rules.relays, made.mode.listening) == (["full", "partial"], [], {})
        await made.have(web, one)
        assert rules.done == ["full", "partial", "partial"]
        assert rules.relays
