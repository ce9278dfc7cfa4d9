"""What the table shares the kernel with: the marks and rules of others, and the kernel's limits."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from dataplanes import DATAPLANE, of_nftables
from patience import surely
from small_cluster import CLIENTS, CONFIG, ENDPOINTS, NODE_VIEW, both, endpoints, planned, service, state
from world import Answer, World

from kdns.net import FAMILIES, Family
from kdns.netlink.io import xtables
from kdns.proxy.nftables.io import nft
from kdns.proxy.nftables.io.clean_up import NftablesPart, remove_tables
from kdns.proxy.nftables.io.proxier import NftablesProxier, clean_up
from kdns.proxy.plan.planner import plan
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Footprint


@pytest.fixture
def others(loop: asyncio.AbstractEventLoop, world: World) -> Iterator[World]:
    config = replace(CONFIG, mode=DATAPLANE.mode)
    made = plan(state(service(1, endpoints(1, "r1"))), NODE_VIEW, config)
    loop.run_until_complete(DATAPLANE.proxier().sync_full(made))
    world.forget()
    yield world
    subprocess.run(["nft", "delete", "table", "ip", "others"], check=True)


def ask(loop: asyncio.AbstractEventLoop, world: World) -> Answer:
    return loop.run_until_complete(surely(world, CLIENTS["outside"][0], both("vip", 1)[0], "TCP", 80))


def rules(loop: asyncio.AbstractEventLoop, *chains: str) -> None:
    text = "".join(f"chain c{number} {{ {chain}; }}\n" for number, chain in enumerate(chains))
    loop.run_until_complete(nft.apply(f"table ip others {{\n{text}}}\n"))


def packets() -> list[int]:
    listed = subprocess.run(["nft", "-j", "list", "table", "ip", "others"], capture_output=True, check=True).stdout
    found = [row["rule"]["expr"] for row in json.loads(listed)["nftables"] if "rule" in row]
    return [part["counter"]["packets"] for expressions in found for part in expressions if "counter" in part]


def test_marks_of_others_stay_and_its_own_goes(loop: asyncio.AbstractEventLoop, others: World) -> None:
    rules(
        loop,
        "type filter hook prerouting priority -150; ip daddr 10.96.0.1 meta mark set 0x10001",
        "type filter hook postrouting priority 200; ip daddr 10.1.1.2 ct state new meta mark 0x10001 counter",
        "type filter hook postrouting priority 200; ip daddr 10.1.1.2 ct state new counter",
    )
    assert ask(loop, others).is_masqueraded
    marked, new = packets()
    assert marked == new > 0


def test_what_others_have_sent_elsewhere_is_left_alone(loop: asyncio.AbstractEventLoop, others: World) -> None:
    rules(loop, "type nat hook prerouting priority -101; ip daddr 10.96.0.1 tcp dport 80 dnat to 10.1.1.3:8443")
    answer = ask(loop, others)
    assert (answer.backend, answer.port) == (ENDPOINTS["r2"][0], 8443)


def test_a_firewall_behind_sees_the_endpoint_and_the_client(loop: asyncio.AbstractEventLoop, others: World) -> None:
    rules(
        loop, "type filter hook forward priority 10; ip saddr 192.0.2.100 ip daddr 10.1.1.2 tcp dport 8080 counter drop"
    )
    asked = others.probe(CLIENTS["outside"][0], both("vip", 1)[0], "TCP", 80)
    assert loop.run_until_complete(asked).error == "dropped"
    assert packets() != [0]


@of_nftables
def test_tables_of_kube_proxy_are_removed_once_none_is_at_work(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_until_complete(
        nft.apply("table ip kube-proxy { }", "table ip6 kube-proxy { }", "table inet kube-proxy { }")
    )
    loop.run_until_complete(NftablesProxier().sync_full(planned()))
    ours = Footprint((NftablesPart(),))
    try:
        for kept, removed in (
            (replace(ours, keep_kube_proxy=True), []),
            (ours, ["table ip kube-proxy", "table ip6 kube-proxy"]),
            (ours, []),
            (Footprint(keep_kube_proxy=True), ["table ip kdns", "table ip6 kdns"]),
            (Footprint(), []),
        ):
            assert loop.run_until_complete(remove_tables(Settings(), kept)) == removed
        listed = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
        assert listed == "table inet kube-proxy\n"
    finally:
        subprocess.run(["nft", "flush", "ruleset"], check=True)


@of_nftables
def test_a_changeover_from_another_proxy(loop: asyncio.AbstractEventLoop, world: World) -> None:
    """Of two chains at one place of the kernel the one made last comes first: nobody waits for the other to go."""
    made = planned(service(1, endpoints(1, "r1")))
    hook = "type nat hook prerouting priority -100; ip daddr 10.96.0.1 tcp dport 80 dnat to 10.1.1.3:8443"
    loop.run_until_complete(clean_up())
    loop.run_until_complete(nft.apply(f"table ip kube-proxy {{ chain c {{ {hook}; }}; }}"))
    try:
        world.forget()
        assert ask(loop, world).backend == ENDPOINTS["r2"][0]
        loop.run_until_complete(NftablesProxier().sync_full(made))
        assert ask(loop, world).backend == ENDPOINTS["r1"][0]
    finally:
        loop.run_until_complete(nft.apply("delete table ip kube-proxy"))
    assert ask(loop, world).backend == ENDPOINTS["r1"][0]


@of_nftables
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("add element ip others s { 192.0.2.9 }\nflush chain ip kdns services", "unknown: ip kdns chain services"),
        ("flush chain ip6 kdns services\nadd element ip others s { 192.0.2.9 }", "by nft (process "),
        ("flush map ip kdns service-ips", "by nft (process "),
        ("flush ruleset", ""),
    ],
)
@pytest.mark.usefixtures("others")
def test_large_sets_of_others_cause_no_repair(loop: asyncio.AbstractEventLoop, text: str, told: str) -> None:
    """Foreign elements fill no buffer, and changes of kdns's own tables are noticed, whatever is changed with them."""
    said: list[str] = []
    mode = NftablesProxier()

    def run(commands: str) -> None:
        """As a program that is quicker than this event loop."""
        subprocess.run(["nft", "-f", "-"], input=commands, text=True, check=True)

    async def work() -> None:
        await mode.sync_full(planned(service(1, endpoints(1, "r1"))))
        run("table ip others {\n set s {\n type ipv4_addr\n }\n}\n")
        with mode.watch(said.append):
            elements = ", ".join(f"10.{number >> 8}.{number & 255}.1" for number in range(60_000))
            run(f"add element ip others s {{ {elements} }}\n")
            await asyncio.sleep(0)
            run(f"{text}\n")
            async with asyncio.timeout(60):
                while not said:  # noqa: ASYNC110 - it is appended by a callback
                    await asyncio.sleep(0.01)

    try:
        loop.run_until_complete(work())
        assert said[0].startswith(told)
        assert "more changes than could be followed" not in said
    finally:
        run("add table ip others\n")
        loop.run_until_complete(mode.close(keep_rules=False))


@of_nftables
def test_own_transactions_are_no_changes_by_others(loop: asyncio.AbstractEventLoop) -> None:
    said: list[str] = []
    mode = NftablesProxier()

    async def work() -> None:
        with mode.watch(said.append):
            for names in (("r1",), ("r1", "r2")):
                await mode.sync_full(planned(service(1, endpoints(1, *names))))
        await mode.close(keep_rules=False)

    loop.run_until_complete(work())
    assert said == []


@of_nftables
@pytest.mark.parametrize("family", FAMILIES)
def test_tables_of_iptables_legacy_are_read_and_none_is_made(family: Family) -> None:
    names = Path(f"/proc/self/net/{'ip' if family == 'IPv4' else 'ip6'}_tables_names")
    if not names.exists():
        pytest.skip("a kernel without iptables-legacy")
    before = names.read_text()
    assert xtables.legacy_tables(family) == before.split()
    assert names.read_text() == before
    content = xtables.legacy_content(family, "nat")  # to ask for it makes it
    assert content.rules == dict.fromkeys(("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"), 0)
    assert "nat" in names.read_text().split()
