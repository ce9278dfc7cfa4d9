"""The dataplanes that the tests of this folder run over: modes, and back ends of iptables. DATAPLANE names one of them.

A file that imports DATAPLANE runs once over each, in a process and namespaces of its own; over mode ipvs tests/kernel
runs some of them.
"""

import os
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import pytest
from hypothesis import settings
from nft_listing import nft_rules

from kdns.net import FAMILIES, Family
from kdns.netlink.xtables import Backend
from kdns.proxy.iptables.base_chains import Features
from kdns.proxy.iptables.io.proxier import IptablesProxier
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.ipvs.mode import IPVS as IPVS_MODE
from kdns.proxy.ipvs.settings import IpvsSettings
from kdns.proxy.nftables.io.clean_up import remove_tables
from kdns.proxy.nftables.io.proxier import NftablesProxier
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Footprint, RunningMode
from kdns.proxy.userspace.mode import USERSPACE
from kdns.proxy.xtables.io.clean_up import remove_chains
from kdns.proxy.xtables.io.programs import Programs

EXPLORES: Final = settings.get_current_profile_name() == "explore"
"""Whether random tests take many examples, and others each time."""


class Proxier(RunningMode, Protocol):
    """What `Dataplane.proxier` makes."""

    async def difference(self) -> str:
        """What differs in the kernel from what was written, "" for nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Dataplane:
    """One mode, in one back end.

    `capture` makes the rules that lead to relays, and `relays` are the semantics of both. `clean_up` removes all rules.
    `rules` are one family's, to compare: without order where order has no meaning.
    `share`: random tests have one of so many examples, since those of mode nftables are for the plan too.
    """

    name: str
    mode: Semantics
    proxier: Callable[[], Proxier]
    capture: Callable[[], Proxier]
    relays: Semantics
    clean_up: Callable[[], Awaitable[object]]
    rules: Callable[[Family], object]
    share: int = 1

    @property
    def examples(self) -> int:
        return (500 if EXPLORES else 25) // self.share


_SHARED: Final = (
    *("KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL"),
    "KUBE-IPVS-OUT-FILTER",
)
"""Chains with a rule for each Service port, in any order; the last rules of KUBE-SERVICES lead to KUBE-NODEPORTS."""


def iptables_rules(backend: Backend, family: Family) -> dict[tuple[str, str], list[str]]:
    """The rules of each chain, as the program saves them."""
    found: dict[tuple[str, str], list[str]] = {}
    table = ""
    for line in _output(f"{'iptables' if family == 'IPv4' else 'ip6tables'}-{backend}-save").splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":"):
            found[table, line[1:].split()[0]] = []
        elif line.startswith("-A "):
            found[table, line.split()[1]].append(line)
    for (_, chain), rules in found.items():
        if chain in _SHARED:
            rules.sort(key=lambda rule: (rule.endswith("-j KUBE-NODEPORTS"), rule))
    return found


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


async def _remove_tables() -> None:
    await remove_tables(Settings(), Footprint())


async def _remove_chains() -> None:
    await remove_chains(Settings(), Footprint())


_OVER_IPTABLES: Final = replace(
    USERSPACE, guards_without_endpoints=False, rejects_undefined_ports=False, drops_unallocated=False
)


def _iptables(backend: Backend) -> Dataplane:
    def proxier() -> Proxier:
        features = Features(chains_per_section=3 if backend == "nft" else 0)
        return IptablesProxier(Programs(backend, (1, 8, 9), f"-{backend}"), FAMILIES, features)

    return Dataplane(
        f"iptables-{backend}",
        IPTABLES,
        proxier,
        proxier,
        _OVER_IPTABLES,
        _remove_chains,
        lambda family: iptables_rules(backend, family),
        share=10,
    )


def _ipvs_proxier() -> Proxier:
    """Mode ipvs, which forgets what has ended: a client's port that comes again is not the connection before."""
    from kdns.proxy.ipvs.io.proxier import IpvsProxier  # noqa: PLC0415 - others do not need it
    from kdns.proxy.ipvs.io.sysctls import apply_ipvs_sysctls  # noqa: PLC0415

    _output("ipvsadm", "--set", "0", "1", "1")
    apply_ipvs_sysctls(IpvsSettings())
    return IpvsProxier(Programs("legacy", (1, 8, 9), "-legacy"), FAMILIES)


def ipvs_content(family: Family) -> dict[str, Any]:
    """Virtual servers, sets and rules; without what only waits for its connections to end."""
    lines = [line for line in _output("ipvsadm", "-Sn").splitlines() if ("[" in line) == (family == "IPv6")]
    serving = sorted(line for line in lines if line.startswith("-a") and not line.endswith("-w 0"))
    used = {tuple(line.split()[1:3]) for line in serving}
    sets = _output("ipset", "save", "-sorted").splitlines()
    mine = [line.split() for line in sets if ("KUBE-6-" in line) == (family == "IPv6")]
    return {
        "virtual servers": sorted(line for line in lines if line[:2] == "-A" and tuple(line.split()[1:3]) in used),
        "destinations": serving,
        "sets": sorted(words[1:4] if words[0] == "create" else words for words in mine),
        "rules": iptables_rules("legacy", family),
    }


async def _remove_ipvs() -> None:
    from kdns.proxy.ipvs.io.clean_up import remove_ipvs  # noqa: PLC0415

    await _remove_chains()
    await remove_ipvs(Settings(), Footprint())


_IPVS: Final = Dataplane(
    "ipvs",
    IPVS_MODE,
    _ipvs_proxier,
    lambda: IptablesProxier(Programs("legacy", (1, 8, 9), "-legacy")),
    _OVER_IPTABLES,
    _remove_ipvs,
    ipvs_content,
    share=8,
)
DATAPLANES: Final = {
    each.name: each
    for each in (
        Dataplane("nftables", NFTABLES, NftablesProxier, NftablesProxier, USERSPACE, _remove_tables, nft_rules),
        _iptables("nft"),
        _iptables("legacy"),
    )
}
ONE_BACK_END: Final = {
    "test_agreement.py": "the text of their rules is the same",
    "test_between.py": "both replace a table at once",
    "test_dns_rollout.py": "flows are conntrack's in both",
    "test_relays_and_modes.py": "test_iptables_mode.py has what others do to rules in both",
    "test_trace_live.py": "connections are conntrack's in both",
    "test_affinity.py": "both back ends leave clients to the kernel's xt_recent",
    "test_rolling.py": "both replace a table at once",
    "test_userspace.py": "packets that are not captured are in other files",
}
"""The files that run over iptables-nft and not over iptables-legacy, and why that is enough."""
DATAPLANE: Final = (DATAPLANES | {"ipvs": _IPVS})[os.environ.get("DATAPLANE", "nftables")]
of_iptables = pytest.mark.skipif(DATAPLANE.mode is not IPTABLES, reason="is for mode iptables alone")
of_nftables = pytest.mark.skipif(DATAPLANE.mode is not NFTABLES, reason="is for mode nftables alone")


def all_rules() -> str:
    programs = [f"{name}-{backend}-save" for name in ("iptables", "ip6tables") for backend in ("nft", "legacy")]
    return "".join((_output("nft", "list", "ruleset"), *map(_output, programs)))
