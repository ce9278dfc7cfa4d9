"""Mode ipvs and open connections: endpoints and Services that end, a restart, changes by others, a clean-up."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from mode_under_test import Node, started
from small_cluster import CLIENTS, ENDPOINTS, endpoints, service
from world import World

from kdns.errors import InputError
from kdns.netlink.addresses import VIRTUAL_LINK
from kdns.netlink.io.addresses import link_addresses
from kdns.netlink.io.ipset import ipsets
from kdns.netlink.io.ipvs import ipvs
from kdns.netlink.ipset import SetType
from kdns.netlink.ipvs import Destination, DestinationKey, Operation, ServerOptions, Timeouts, Verb, VirtualServerKey
from kdns.proxy.ipvs.io import clean_up, proxier
from kdns.proxy.ipvs.io.clean_up import remove_ipvs
from kdns.proxy.ipvs.settings import IpvsSettings
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Footprint
from kdns.proxy.takeover.io.modes import runtime
from kdns.proxy.xtables.io.clean_up import IptablesPart

SETTINGS: Final = Settings(mode="ipvs")
VIP: Final = ("10.96.0.1", "fd00:96::1")
DEADLINE_S: Final = 60.0
Run = Callable[[Awaitable[object]], object]


class Open:
    """A connection to the first Service that stays open."""

    def __init__(self, world: World, who: str = "outside", which: int = 0, vip: int = 1) -> None:
        self.address = VIP[which][:-1] + str(vip)
        self.socket = world.socket(who, CLIENTS[who][which], socket.SOCK_STREAM)
        # It ends by a reset, which IPVS forgets after ten seconds instead of two minutes.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def connect(self) -> Open:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.get_running_loop().sock_connect(self.socket, (self.address, 80))
        return self

    async def answer(self) -> str:
        """Who answers; nobody else is asked on this connection afterwards."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DEADLINE_S):
            await loop.sock_sendall(self.socket, b"hello")
            said = (await loop.sock_recv(self.socket, 100)).decode()
        names = [name for name, addresses in ENDPOINTS.items() if said.split()[0] in addresses]
        return str(*names)


def there(vip: str, protocol: str = "TCP", port: int = 80) -> dict[str, tuple[int, int]]:
    """The destinations of a virtual server: weight and open connections by endpoint."""
    with ipvs() as kernel:
        found: dict[DestinationKey, Destination] = kernel.destinations(VirtualServerKey(vip, port, protocol))
    names = {address: name for name, addresses in ENDPOINTS.items() for address in addresses}
    return {names[address]: (each.weight, each.active) for (address, _), each in sorted(found.items())}


def servers() -> set[VirtualServerKey]:
    with ipvs() as kernel:
        return set(kernel.servers())


def do(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)


async def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.1)


@pytest.fixture(scope="module", autouse=True)
def impatience() -> Iterator[None]:
    """Look more often: what is waited for is seen at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proxier, "POLL_S", 0.2)
        patch.setattr(proxier, "BACKOFF_FACTOR", 1.0)
        patch.setattr(proxier, "CHECK_S", 0.5)
        patch.setattr(clean_up, "POLL_S", 0.2)
        yield


@pytest.fixture(scope="module")
def node(world: World, loop: asyncio.AbstractEventLoop) -> Iterator[Node]:
    del world
    made = Node(loop.run_until_complete(started(SETTINGS)))
    yield made
    loop.run_until_complete(made.mode.close(keep_rules=False))


@pytest.fixture
def run(loop: asyncio.AbstractEventLoop) -> Run:
    return loop.run_until_complete


async def answers_of(world: World, which: int, count: int = 4) -> set[str]:
    return {await (await Open(world, which=which).connect()).answer() for _ in range(count)}


@pytest.mark.parametrize("which", [0, 1])
def test_an_endpoint_in_use_ends_gracefully(world: World, node: Node, run: Run, which: int) -> None:
    async def all_of_it() -> None:
        vip = VIP[which]
        await node.become(service(1, endpoints(1, "p1")))
        one = await Open(world, which=which).connect()
        await node.change(endpoints(1, "p2"))
        assert there(vip) == {"p1": (0, 1), "p2": (1, 0)}
        assert await answers_of(world, which) == {"p2"}
        await node.change(endpoints(1, "p1", "p2"))
        assert {name: weight for name, (weight, _) in there(vip).items()} == {"p1": 1, "p2": 1}
        await node.change(endpoints(1, "p2", "r1"))
        assert {name: weight for name, (weight, _) in there(vip).items()} == {"p1": 0, "p2": 1, "r1": 1}
        assert await one.answer() == "p1"
        assert set(there(vip, "UDP")) == {"p2", "r1"}

    run(all_of_it())


def test_virtual_ips_are_no_sources(node: Node, run: Run) -> None:
    async def all_of_it() -> None:
        await node.become(service(1, endpoints(1, "p1")))

    run(all_of_it())
    command = f"ip -6 -oneline address show {VIRTUAL_LINK}"
    told = subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout
    (line,) = (each for each in told.splitlines() if "fd00:96::1/" in each)
    assert "deprecated" in line


def test_what_has_no_connection_goes_at_once(node: Node, run: Run) -> None:
    async def all_of_it() -> None:
        await node.become(service(1, endpoints(1, "p1", "p2")), service(2, endpoints(2, "r1")))
        index = socket.if_nametoindex(VIRTUAL_LINK)
        assert "10.96.0.2" in link_addresses(index)
        await node.change(endpoints(1, "p2"))
        await node.become(service(1, endpoints(1, "p2")))
        assert VirtualServerKey("10.96.0.2", 80, "TCP") not in servers()
        assert not {"10.96.0.2", "198.51.100.2", "fd00:96::2"} & link_addresses(index)

    run(all_of_it())


def test_what_has_connections_goes_when_they_have_ended(world: World, node: Node, run: Run) -> None:
    """An endpoint, and a Service with its address."""

    async def all_of_it() -> None:
        await node.become(service(1, endpoints(1, "p1")), service(2, endpoints(2, "r1")))
        to_endpoint, to_service = await Open(world).connect(), await Open(world, vip=2).connect()
        again = await Open(world, vip=2).connect()
        await node.become(service(1, endpoints(1, "p2")))
        assert there("10.96.0.2") == {"r1": (0, 2)}
        assert await again.answer() == "r1"
        refused = await world.probe(CLIENTS["outside"][0], "10.96.0.2", "TCP", 80)
        assert refused.error == "rejected"
        for each in (to_endpoint, to_service, again):
            each.socket.close()
        index = socket.if_nametoindex(VIRTUAL_LINK)
        with node.mode.watch(pytest.fail):
            await until(
                lambda: set(there("10.96.0.1")) == {"p2"} and VirtualServerKey("10.96.0.2", 80, "TCP") not in servers()
            )
            await until(lambda: "10.96.0.2" not in link_addresses(index))

    run(all_of_it())


def test_connections_survive_a_restart(world: World, node: Node, run: Run) -> None:
    foreign, excluded = VirtualServerKey("10.99.0.1", 80, "TCP"), VirtualServerKey("10.98.0.1", 80, "TCP")

    async def all_of_it() -> None:
        await node.become(service(1, endpoints(1, "p1")), service(2, endpoints(2, "r1")))
        one, gone = await Open(world).connect(), await Open(world, vip=2).connect()
        with ipvs() as kernel:
            kernel.carry_out(
                [Operation(Verb.NEW_SERVER, each, options=ServerOptions("rr")) for each in (foreign, excluded)]
            )
        again = Node(await started(Settings(mode="ipvs").with_section(IpvsSettings(exclude_cidrs=("10.98.0.0/16",)))))
        await again.become(service(1, endpoints(1, "p2")))
        assert there("10.96.0.1") == {"p1": (0, 1), "p2": (1, 0)}
        assert foreign not in servers()
        assert excluded in servers()
        assert (await one.answer(), await gone.answer()) == ("p1", "r1")
        with ipvs() as kernel:
            kernel.carry_out([Operation(Verb.DELETE_SERVER, excluded)])
        node.planner = None

    run(all_of_it())


@pytest.mark.parametrize(
    "command",
    [
        "ipvsadm -C",
        f"ip link delete {VIRTUAL_LINK}",
        f"ip address delete 10.96.0.1/32 dev {VIRTUAL_LINK}",
        "ipvsadm -a -t 10.96.0.1:80 -r 10.9.9.9:80 -m",
        "ipset flush KUBE-CLUSTER-IP",
        "iptables-legacy -t nat -F",
    ],
)
def test_changes_by_others_are_noticed_and_healed(world: World, node: Node, run: Run, command: str) -> None:
    async def all_of_it() -> None:
        await node.become(service(1, endpoints(1, "p1")))
        said: list[str] = []
        with node.mode.watch(said.append):
            await asyncio.to_thread(subprocess.run, command.split(), check=True, capture_output=True)
            await until(lambda: bool(said))
        assert node.planner
        await node.mode.sync_full(node.planner.plan)
        assert await answers_of(world, 0, 1) == {"p1"}

    run(all_of_it())


def test_what_others_have_left_under_these_names(world: World, node: Node, run: Run) -> None:
    """Sets that forget, have a mask, or no room; a link for a try."""

    async def all_of_it() -> None:
        await node.mode.close(keep_rules=False)
        for command in (
            "ipset create KUBE-CLUSTER-IP hash:ip,port timeout 1",
            "ipset create KUBE-NODE-PORT-TCP bitmap:port range 1-100",
            "ipset create KUBE-IPVS-IPS hash:ip netmask 24",
            "ipset create KUBE-6-CLUSTER-IP hash:ip,port family inet6 maxelem 2",
            "iptables-legacy -t nat -A OUTPUT -m set --match-set KUBE-CLUSTER-IP dst,dst",
            f"ip link add kdns-{os.getpid()} type dummy",
        ):
            do(command)
        node.mode, node.planner = await started(SETTINGS), None
        await node.become(service(1, endpoints(1, "p1")))
        assert await answers_of(world, 0, 1) == {"p1"}
        with ipsets() as kernel:
            assert all(header.is_plain for header in kernel.headers().values())
            assert {"10.96.0.1,tcp:80", "10.96.0.1,udp:80"} <= kernel.entries("KUBE-CLUSTER-IP")
            assert "30001" in kernel.entries("KUBE-NODE-PORT-TCP")
            kernel.create("KUBE-CLUSTER-IP-NEW", SetType("hash:ip,port", "IPv4"))  # as killed while it took the place
        do("iptables-legacy -t nat -F OUTPUT")
        await node.mode.close(keep_rules=False)
        with ipsets() as kernel:
            assert not kernel.headers()
        node.planner = None

    run(all_of_it())


def test_where_ipv6_is_off_by_default(node: Node, run: Run) -> None:
    def switch(value: int) -> None:
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text(f"{value}")

    async def all_of_it() -> None:
        await node.mode.close(keep_rules=False)
        switch(1)
        try:
            node.mode, node.planner = await started(SETTINGS), None
            await node.become(service(1, endpoints(1, "p1")))
            assert "fd00:96::1" in link_addresses(socket.if_nametoindex(VIRTUAL_LINK))
        finally:
            switch(0)

    run(all_of_it())


def test_a_clean_up_lets_connections_end(world: World, node: Node, run: Run) -> None:
    """Where another mode takes over; a clean-up of everything waits for nothing."""
    other_mode = Footprint((IptablesPart("legacy", lambda _table, _chain: True, frozenset()),))

    async def all_of_it() -> None:
        await node.become(service(1, endpoints(1, "p1")), service(2, endpoints(2, "r1")))
        foreign = VirtualServerKey("10.99.0.1", 80, "TCP")
        with ipvs() as kernel:
            kernel.carry_out([Operation(Verb.NEW_SERVER, foreign, options=ServerOptions("rr"))])
        one = await Open(world).connect()
        assert await remove_ipvs(SETTINGS, node.mode.footprint) == []
        assert await remove_ipvs(SETTINGS, other_mode) == []
        assert servers() == {VirtualServerKey("10.96.0.1", 80, "TCP"), foreign}
        assert there("10.96.0.1") == {"p1": (0, 1)}
        index = socket.if_nametoindex(VIRTUAL_LINK)
        assert link_addresses(index) == {"10.96.0.1"}
        assert await one.answer() == "p1"
        removed = await remove_ipvs(SETTINGS, Footprint())
        assert f"link {VIRTUAL_LINK}" in removed
        assert servers() == {foreign}
        assert VIRTUAL_LINK not in {name for _, name in socket.if_nameindex()}
        await node.mode.close(keep_rules=False)
        with ipsets() as kernel_of_sets:
            assert not kernel_of_sets.headers()
        with ipvs() as kernel:
            kernel.carry_out([Operation(Verb.DELETE_SERVER, foreign)])
        assert await remove_ipvs(SETTINGS, Footprint()) == []
        node.planner = None

    run(all_of_it())


def test_what_the_settings_say(run: Run) -> None:
    async def all_of_it() -> None:
        part = IpvsSettings(scheduler="mh", tcp_timeout_s=700.0, udp_timeout_s=50.4)
        node = Node(await started(Settings(mode="ipvs").with_section(part)))
        with ipvs() as kernel:
            found = kernel.timeouts()
            kernel.set_timeouts(Timeouts(900, 120, 300))
        assert (found.tcp_s, found.tcp_fin_s, found.udp_s) == (700, 120, 50)
        with pytest.raises(InputError, match="unknown scheduler 'nope'; expected one of rr"):
            await started(Settings(mode="ipvs").with_section(IpvsSettings(scheduler="nope")))
        assert servers() == set()
        await node.mode.close(keep_rules=False)

    run(all_of_it())


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("xt_set", r"rules of iptables cannot match sets \(.*\); load the kernel's modules xt_set and xt_ipvs"),
        ("ip_set_hash_ipportnet", r"no sets of type hash:ip,port,net \(.*\); load its module ip_set_hash_ipportnet"),
        ("dummy", "the kernel has no dummy links; load its module dummy"),
    ],
)
def test_what_a_kernel_lacks_is_told(node: Node, run: Run, module: str, reason: str) -> None:
    helper = Path("/run/bin/modprobe")
    script = helper.read_text()
    run(node.mode.close(keep_rules=False))
    do(f"{helper} -r {module}")
    real = script.splitlines()[-1]
    dry = real.removeprefix("exec ").replace('"$@"', '-D "$@"')
    helper.write_text(f'#!/bin/sh\ncase "$({dry})" in */{module}.ko*) exit 1;; esac\n{real}\n')
    try:
        assert re.search(reason, str(run(runtime("ipvs").unsupported(SETTINGS))))
    finally:
        helper.write_text(script)
    assert not run(runtime("ipvs").unsupported(SETTINGS))
    with ipsets() as kernel:
        assert not kernel.headers()
