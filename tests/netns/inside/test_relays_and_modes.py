"""Relays and a mode of the kernel take each other's place, with rules of the same kind; nothing is left of either."""

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from dataplanes import DATAPLANE, all_rules, of_iptables
from patience import surely
from small_cluster import CLIENTS, CONFIG, NODE_VIEW, both, endpoints, service, state
from world import World

from kdns.proxy.nftables.io import nft
from kdns.proxy.nftables.io.clean_up import remove_tables
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import plan
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import RunningMode
from kdns.proxy.takeover.io.modes import runtime
from kdns.proxy.userspace.io.proxier import UserspaceProxier
from kdns.proxy.xtables.io.clean_up import remove_chains

CONFIG_OF = {
    mode.name: replace(CONFIG, mode=mode, node_port_addresses=()) for mode in (DATAPLANE.relays, DATAPLANE.mode)
}
DEADLINE_S = 60.0


def planned(name: str) -> Plan:
    return plan(state(service(1, endpoints(1, "r1"))), NODE_VIEW, CONFIG_OF[name])


@asynccontextmanager
async def relays() -> AsyncIterator[UserspaceProxier]:
    made = UserspaceProxier(DATAPLANE.capture())
    try:
        await made.sync_full(planned("userspace"))
        yield made
    finally:
        await made.close()


async def remove_others(mode: RunningMode) -> None:
    for each in (remove_tables, remove_chains):
        await each(Settings(), mode.footprint)


async def assert_masquerades(world: World, *, by_relays: bool) -> None:
    """A relay's connections are the node's own; otherwise an endpoint sees a Pod of this node as it is."""
    world.forget()
    for which in (0, 1):
        answer = await surely(world, CLIENTS["pod1"][which], both("vip", 1)[which], "TCP", 80)
        assert not answer.error
        assert answer.is_masqueraded == by_relays


@pytest.mark.parametrize("relays_first", [True, False])
def test_one_takes_the_others_place(world: World, loop: asyncio.AbstractEventLoop, *, relays_first: bool) -> None:
    async def check() -> None:
        mode = DATAPLANE.proxier()
        if relays_first:
            async with relays():
                await assert_masquerades(world, by_relays=True)
            await mode.sync_full(planned(DATAPLANE.mode.name))
            await assert_masquerades(world, by_relays=False)
            assert "relay" not in all_rules()
            await mode.close(keep_rules=False)
        else:
            await mode.sync_full(planned(DATAPLANE.mode.name))
            await assert_masquerades(world, by_relays=False)
            async with relays() as after:
                await remove_others(after)
                await assert_masquerades(world, by_relays=True)
        assert "kdns" not in all_rules()

    loop.run_until_complete(check())


def test_clients_of_relays_are_told_that_they_end(world: World, loop: asyncio.AbstractEventLoop) -> None:
    """While the kernel still translates what is sent to them."""

    async def check() -> None:
        with world.socket("pod1", str(CLIENTS["pod1"][0]), socket.SOCK_STREAM) as client:
            async with relays():
                await loop.sock_connect(client, (str(both("vip", 1)[0]), 80))
            async with asyncio.timeout(DEADLINE_S):
                with pytest.raises(ConnectionResetError):
                    await loop.sock_recv(client, 1)

    loop.run_until_complete(check())


@of_iptables
def test_without_nftables_it_is_iptables_that_captures(
    world: World, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: str) -> str:
        return "no nftables here"

    monkeypatch.setattr(nft, "check", refused)

    async def check() -> None:
        made = await runtime("userspace").start(Settings(mode="userspace"))
        try:
            await made.sync_full(planned("userspace"))
            assert "10.96.0.1:80/TCP relay" in all_rules()
            await assert_masquerades(world, by_relays=True)
        finally:
            await made.close(keep_rules=False)

    loop.run_until_complete(check())


@of_iptables
def test_the_end_of_relays_is_the_end_of_their_capture(loop: asyncio.AbstractEventLoop) -> None:
    """Whatever others did to its rules: what stayed would lead to nobody."""

    async def check() -> None:
        async with relays():
            double()
        left = [line for line in all_rules().splitlines() if line.startswith((":KUBE", "-A"))]
        assert set(left) == {":KUBE-SERVICES - [0:0]", "-A MINE -j KUBE-SERVICES"}

    loop.run_until_complete(check())
    for command in ("-F MINE", "-X MINE", "-X KUBE-SERVICES"):
        subprocess.run([DATAPLANE.name, "-t", "nat", *command.split()], check=True)


def double() -> None:
    """Restore what was saved beside what is there, and lead to it from elsewhere."""
    saved = subprocess.run([f"{DATAPLANE.name}-save"], check=True, capture_output=True, text=True).stdout
    more = f"{saved}*nat\n:MINE - [0:0]\n-A MINE -j KUBE-SERVICES\nCOMMIT\n"
    subprocess.run([f"{DATAPLANE.name}-restore", "--noflush"], check=True, input=more, text=True)
