"""The recorded configurations of kube-proxy's mode iptables in the kernel: its own list of rules beside the record.

tests/conformance/test_iptables.py compares the text of restores with all of the record; this is the kernel's part.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kdns.net import FAMILIES, Family
from kdns.proxy.iptables.io import start as floors
from kdns.proxy.iptables.io.proxier import IptablesProxier
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Footprint
from kdns.proxy.xtables.io.clean_up import remove_chains
from kdns.proxy.xtables.io.programs import Programs, installed

sys.path.append(str(Path(__file__).parents[2] / "conformance"))
recorded: Any = pytest.importorskip("test_iptables")
if not recorded.FACTS.exists():
    pytest.skip(f"the recorded facts are not here: {recorded.FACTS}", allow_module_level=True)

CONFIGURATIONS = ("defaults", "legacy", "cluster-cidr-v4-only", "bridge-interface", "nodeport-cidrs", "localhost-false")
CHANGES = 45
"""The changes before those in which other programs have a part."""
COMPARED = 6
"""All changes are carried out, and the rules compared after one in so many: the kernel lists them slowly."""
MATCHES = ("-s", "-d", "-i", "-o", "-p", "-m")
PROGRAM = {"IPv4": "iptables", "IPv6": "ip6tables"}


def started(loop: asyncio.AbstractEventLoop, backend: str) -> tuple[Programs, IptablesProxier]:
    async def start() -> tuple[Programs, IptablesProxier]:
        programs = (await installed()).get(backend)  # type: ignore[call-overload]
        if programs is None:
            pytest.skip(f"needs the program iptables-{backend}")
        features = await floors.features(programs, Settings())
        if not features.nfacct:
            pytest.skip("needs a kernel with nfnetlink_acct, as the record's had")
        return programs, IptablesProxier(programs, FAMILIES, features)

    return loop.run_until_complete(start())


@pytest.fixture(autouse=True)
def clean(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    yield
    loop.run_until_complete(remove_chains(None, Footprint()))


def in_order(line: str) -> tuple[str, ...]:
    """A rule as iptables-save prints it, in the order of the record."""
    words = shlex.split(line)[2:]
    end = words.index("-j") if "-j" in words else len(words)
    groups: list[list[str]] = []
    for at, word in enumerate(words[:end]):
        is_new = word in MATCHES or (word == "!" and words[at + 1] in MATCHES)
        if is_new and not (groups and groups[-1] == ["!"]):
            groups.append([])
        groups[-1].append(word)
    head = [group for group in groups if "-m" not in group[:2]]
    matches = sorted(group for group in groups if "-m" in group[:2])
    return tuple(word for group in (*head, *matches, words[end:]) for word in group)


def saved(backend: str, family: Family) -> dict[tuple[str, str], tuple[tuple[str, ...], ...]]:
    """The chains of the kernel, in the form of the record."""
    done = subprocess.run([f"{PROGRAM[family]}-{backend}-save"], capture_output=True, text=True, check=True)
    chains: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    table = ""
    for line in done.stdout.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":"):
            chains[table, line[1:].split()[0]] = []
        elif line.startswith("-A"):
            chains[table, line.split()[1]].append(in_order(line))
    return {key: recorded.ordered(*key, rules) for key, rules in chains.items()}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations(loop: asyncio.AbstractEventLoop, name: str) -> None:
    facts, report = recorded.facts(), recorded.Report()
    config = facts["configs"][name]
    proxy = recorded.Proxy(config, facts["objects"])
    _, proxier = started(loop, config["backend"])
    loop.run_until_complete(proxier.sync_full(proxy.planner.plan))
    for family in FAMILIES:
        state = recorded.recorded(facts["states"][name], family)
        report.compare(name, family, state, saved(config["backend"], family))
    report.show(f"the kernel's rules, {name}")


def test_changes(loop: asyncio.AbstractEventLoop) -> None:
    facts, report = recorded.facts(), recorded.Report()
    proxy = recorded.Proxy(facts["configs"]["defaults"], facts["objects"])
    programs, proxier = started(loop, "nft")
    loop.run_until_complete(proxier.sync_full(proxy.planner.plan))
    record: dict[Family, Any] = {family: {} for family in FAMILIES}
    for number, change in enumerate(facts["changes"][:CHANGES]):
        zone, proxy.texts = proxy.planner.node.zone, {}
        if number:
            proxy.step(change["ops"])
        is_full = proxy.planner.node.zone != zone
        if is_full:
            loop.run_until_complete(proxier.sync_full(proxy.planner.plan))
        for family in FAMILIES:
            text = proxy.texts.get(family, "")
            if text and not is_full:
                loop.run_until_complete(programs.restore(family, text))
            recorded.note_change(record[family], change, family)
            if number % COMPARED == 0:
                report.compare(f"{number} {change['change']}", family, record[family], saved("nft", family))
    report.show("the kernel's rules, changes")
