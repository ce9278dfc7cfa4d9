"""From kdns to a kube-proxy and back in each mode, with traffic: what `kdns proxy --cleanup` removes and leaves.

The kube-proxy is a stand-in. It writes rules as kube-proxy does, in its table of nftables or in the chains that kdns
has too, and it takes its ports when they are free; its process is not known by its name. At its start in mode nftables
it removes the chains of mode iptables before it has rules of its own, as kube-proxy does.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import pytest
from patience import surely
from small_cluster import CLIENTS, CONFIG, NODE_VIEW, both, endpoints, service, state

from kdns.errors import ApplyError, KdnsError
from kdns.net import FAMILIES, Family
from kdns.netlink.io import xtables
from kdns.proxy.iptables.base_chains import JUMPS, Features
from kdns.proxy.iptables.io.proxier import IptablesProxier
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.iptables.tables import Tables
from kdns.proxy.nftables.io import nft
from kdns.proxy.nftables.io.proxier import NftablesProxier
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import plan
from kdns.proxy.settings.settings import Settings
from kdns.proxy.takeover.io import takeover
from kdns.proxy.takeover.io.kube_proxy import kube_proxy
from kdns.proxy.takeover.io.modes import clean_ups
from kdns.proxy.xtables.io.programs import Programs, installed, rule_words
from kdns.proxy.xtables.names import NAT, NODE_PORTS, POSTROUTING, SERVICES, is_service_chain
from kdns.proxy.xtables.rules import Jump, inserted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from world import World

Kind: TypeAlias = Literal["nftables", "nft", "legacy"]
"""Mode nftables, or mode iptables in one back end."""

KINDS: Final[tuple[Kind, ...]] = ("nftables", "nft", "legacy")
PROGRAMS: Final = ("iptables-nft", "iptables-legacy")
PROBES: Final = 5
"""Exchanges that each step waits for."""
MARK: Final = '-m comment --comment "kdns"'
pytestmark = pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason=f"needs the programs {PROGRAMS}")


def planned(kind: Kind) -> Plan:
    mode = CONFIG if kind == "nftables" else replace(CONFIG, mode=IPTABLES, node_port_addresses=())
    return plan(state(service(1, endpoints(1, "p1", "r1"))), NODE_VIEW, mode)


async def kdns(kind: Kind) -> NftablesProxier | IptablesProxier:
    """A kdns whose rules stand."""
    made: NftablesProxier | IptablesProxier
    made = NftablesProxier() if kind == "nftables" else IptablesProxier((await installed())[kind])
    await made.sync_full(planned(kind))
    return made


async def kube_proxys_rules(kind: Kind) -> None:
    if kind != "nftables":
        await _chains((await installed())[kind], planned(kind))
        return
    lines = []
    for family, vip, end in (
        ("ip", both("vip", 1)[0], "10.1.0.2:8080"),
        ("ip6", both("vip", 1)[1], "[fd00:1::2]:8080"),
    ):
        rules = "".join(f"{family} daddr {vip} {each} dport 80 dnat to {end}; " for each in ("tcp", "udp"))
        lines.append(
            f"table {family} kube-proxy {{ chain services {{ type nat hook prerouting priority -100; {rules} }}; }}"
        )
    await nft.apply("add table ip kube-proxy", "add table ip6 kube-proxy")
    await nft.apply("delete table ip kube-proxy", "delete table ip6 kube-proxy", *lines)


async def has(programs: Programs, family: Family, jump: Jump) -> bool:
    return sorted(jump.rule) in [sorted(rule_words(rule)) for rule in await programs.rules(family, *jump[:2])]


async def starts(kind: Kind) -> None:
    """What a kube-proxy of this mode does before its first sync: the jumps go first, then the chains (`nat` only)."""
    for programs in (await installed()).values() if kind == "nftables" else ():
        for family in FAMILIES:
            there = await asyncio.to_thread(xtables.chains_by_table, programs.backend, family)
            own = [
                each
                for each in there.get(NAT, ())
                if each in {SERVICES, NODE_PORTS, POSTROUTING} or is_service_chain(each)
            ]
            for jump in JUMPS:
                if jump.table in there and await has(programs, family, jump):
                    await programs.restore(family, f"*{jump.table}\n-D {jump.chain} {jump}\nCOMMIT\n")
            lines = [*(f":{each} - [0:0]" for each in own), *(f"-X {each}" for each in own)]
            if own:
                await programs.restore(family, "\n".join(("*nat", *lines, "COMMIT", "")))


async def takes_over(kind: Kind) -> None:
    proxier = await kdns(kind)
    for each in clean_ups():
        await each.remove(Settings(), proxier.footprint)


async def _chains(programs: Programs, made: Plan) -> None:
    for family in FAMILIES:
        tables = Tables(made.of(family), Features())
        text = tables.whole(await asyncio.to_thread(xtables.chains_by_table, programs.backend, family))
        lines = [line for line in text.splitlines() if MARK not in line and "KUBE-PROXY-CANARY" not in line]
        await programs.restore(family, "\n".join((*lines, "")))
        missing = [jump for jump in JUMPS if not await has(programs, family, jump)]
        await programs.restore(family, inserted(missing))


@asynccontextmanager
async def ports() -> AsyncIterator[None]:
    """The pages of a kube-proxy, served by another process."""
    page = "HTTP/1.0 200 OK\\r\\n\\r\\niptables"
    script = (
        "import socket\n"
        "server = socket.create_server(('127.0.0.1', 10249))\n"
        "print('ready', flush=True)\n"
        f"while True:\n  client, _ = server.accept()\n  client.recv(999)\n  client.sendall(b'{page}')\n  client.close()"
    )
    process = await asyncio.create_subprocess_exec("python3", "-c", script, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    await process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        await process.communicate()


@dataclass
class Load:
    """Clients that connect to the Service all the time, and what failed."""

    world: World
    done: int = 0
    failures: list[str] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            for protocol in ("TCP", "UDP"):
                answer = await self.world.probe(CLIENTS["outside"][0], both("vip", 1)[0], protocol, 80, patience_s=20)
                if answer.error:
                    self.failures.append(f"{protocol}: {answer.error}")
            self.done += 1

    async def goes_on(self) -> None:
        """Return after some exchanges that were begun since."""
        until = self.done + PROBES
        async with asyncio.timeout(60):
            while self.done < until:  # noqa: ASYNC110 - the clients tell nobody
                await asyncio.sleep(0.01)


@asynccontextmanager
async def load(world: World) -> AsyncIterator[Load]:
    made = Load(world)
    world.forget()
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert made.failures == []
    assert made.done


async def clean_up(patience_s: float = 0.0) -> list[str]:
    return await takeover.remove_everything(Settings(), clean_ups(), patience_s=patience_s)


def saved() -> str:
    """The rules of both families in nftables and both back ends, without what was counted and when."""
    commands = [
        ["nft", "list", "ruleset"],
        *([f"{name}-{kind}-save"] for name in ("iptables", "ip6tables") for kind in KINDS[1:]),
    ]
    text = "".join(subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in commands)
    return re.sub(r"^#.*\n|counter packets \d+ bytes \d+|\[\d+:\d+\]", "", text, flags=re.MULTILINE)


@pytest.fixture(autouse=True)
def nothing_left(world: World) -> Iterator[None]:
    yield
    del world
    subprocess.run(["nft", "flush", "ruleset"], check=True)
    for program in ("iptables-legacy", "ip6tables-legacy"):
        for table in ("filter", "nat", "mangle"):
            for what in ("-F", "-X"):
                subprocess.run([program, "-t", table, what], check=True)


@pytest.mark.parametrize(
    ("ours", "theirs"), [("nftables", "nft"), ("nft", "nftables"), ("legacy", "legacy"), ("nft", "legacy")]
)
def test_no_packet_is_lost_on_the_way_there_and_back(
    loop: asyncio.AbstractEventLoop, world: World, ours: Kind, theirs: Kind
) -> None:
    async def move() -> None:
        await kube_proxys_rules(theirs)
        async with load(world) as clients:
            await takes_over(ours)
            await clients.goes_on()
            if theirs == "nftables" != ours:  # as deploy/README.md says
                await takes_over("nftables")
                await clients.goes_on()
            await starts(theirs)
            await clients.goes_on()
            await kube_proxys_rules(theirs)  # its ports are kdns's still, so nothing else shows it
            await clients.goes_on()
            removed = await clean_up()
            await clients.goes_on()
            assert removed or ours == theirs
            assert MARK.replace('"', "") not in saved().replace('"', "")
            assert "table ip kdns" not in saved()

    loop.run_until_complete(move())


@pytest.mark.parametrize("ours", KINDS)
def test_rules_of_kdns_stay_until_a_kube_proxy_at_work_has_written_its_own(
    loop: asyncio.AbstractEventLoop, world: World, ours: Kind
) -> None:
    async def wait() -> None:
        await kdns(ours)
        async with load(world) as clients, ports():
            for _ in range(2):
                with pytest.raises(KdnsError, match="without rules of its own"):
                    await clean_up()
                await clients.goes_on()
            await kube_proxys_rules("nftables")
            assert await clean_up()
            await clients.goes_on()
        assert "KUBE-SERVICES" not in saved()

    loop.run_until_complete(wait())


@pytest.mark.parametrize("theirs", KINDS)
def test_rules_of_a_kube_proxy_that_is_not_at_work_stay(
    loop: asyncio.AbstractEventLoop, world: World, theirs: Kind
) -> None:
    async def clean() -> None:
        await kube_proxys_rules(theirs)
        before = saved()
        assert await clean_up() == []
        assert not await kube_proxy()
        assert saved() == before
        answer = await surely(world, CLIENTS["outside"][0], both("vip", 1)[0], "TCP", 80)
        assert answer.backend

    loop.run_until_complete(clean())


@pytest.mark.parametrize("ours", KINDS[1:])
def test_chains_that_a_kube_proxy_writes_meanwhile_stay(
    loop: asyncio.AbstractEventLoop, world: World, monkeypatch: pytest.MonkeyPatch, ours: Kind
) -> None:
    """Between the look at the mark and the removal: the removal looks once more, in the same transaction."""
    restore = Programs.restore

    async def overtaken(self: Programs, *arguments: object, **more: object) -> None:
        monkeypatch.setattr(Programs, "restore", restore)
        await kube_proxys_rules(ours)
        await restore(self, *arguments, **more)  # type: ignore[arg-type]

    async def clean() -> None:
        await kdns(ours)
        async with load(world) as clients:
            monkeypatch.setattr(Programs, "restore", overtaken)
            with pytest.raises(ApplyError):
                await clean_up()
            await clients.goes_on()
            await clean_up()
            await clients.goes_on()
        assert "KUBE-SERVICES" in saved()

    loop.run_until_complete(clean())
