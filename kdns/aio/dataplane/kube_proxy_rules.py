"""Rules that a kube-proxy has left in the kernel of this node.

kdns's rules were made later and take precedence. Packets that kdns does not translate still meet kube-proxy's rules,
such as those to virtual IPs of Services that were deleted meanwhile.

Nothing is removed, not by --cleanup either: kube-proxy may run again by then, and would not notice for up to an hour
that its rules are gone. Looking loads no kernel module: chains are read only of tables that are loaded.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from kdns import logs
from kdns.aio.netlink import nftables, xtables
from kdns.aio.netlink.protocol import ADDRESS_FAMILY
from kdns.errors import ApplyError
from kdns.net import FAMILIES

TABLE: Final = "kube-proxy"
LINK: Final = "kube-ipvs0"
_CHAIN: Final = re.compile(
    r"KUBE-(SERVICES|EXTERNAL-SERVICES|NODEPORTS?|NODE-PORT|PROXY-CANARY|PROXY-FIREWALL|FORWARD|LOAD-BALANCER"
    r"|IPVS-FILTER|(SVC|SVL|EXT|XLB|FW|SEP)-[A-Z0-9]+)"
)
"""Chains that kube-proxy makes in modes iptables and ipvs, and the kubelet does not."""
_FAMILIES: Final[Mapping[int, str]] = {socket.AF_INET: "ip", socket.AF_INET6: "ip6"}
_WANTED: Final = "kube-proxy --cleanup, from any of its images, or a restart of the machine"

log = logs.get(__name__)


async def report() -> None:
    """Log which rules of kube-proxy are in the kernel, and how to remove them."""
    for mode, found in (await kube_proxy_rules()).items():
        rest = f" and {len(found) - 1} more" if found[1:] else ""
        wanted = " and ".join(f"nft delete {table}" for table in found) if mode == "nftables" else _WANTED
        log.warning("rules of kube-proxy are in the kernel too", mode=mode, found=found[0] + rest, wanted=wanted)


async def kube_proxy_rules() -> dict[str, list[str]]:
    """The rules by kube-proxy's mode; what cannot be read counts as absent."""
    tables, chains = set[tuple[int, str]](), list[tuple[int, str, str]]()
    with suppress(ApplyError):
        tables = await nftables.tables()
    with suppress(ApplyError):
        chains = await nftables.chains()
    legacy = await asyncio.to_thread(lambda: sorted(_legacy()))
    links = [name for _, name in socket.if_nameindex() if name == LINK]
    translated = [f"{_FAMILIES[of]} {table} {name}" for of, table, name in sorted(chains) if of in _FAMILIES]
    found = {
        "nftables": [
            f"table {_FAMILIES[of]} {name}" for of, name in sorted(tables) if of in _FAMILIES and name == TABLE
        ],
        "iptables": [each for each in (*translated, *legacy) if _CHAIN.fullmatch(each.rpartition(" ")[2])],
        "ipvs": [f"link {name}" for name in links],
    }
    return {mode: rows for mode, rows in found.items() if rows}


def _legacy() -> Iterator[str]:
    """Family, table and chain of rules by iptables-legacy, which nftables does not list."""
    for family in FAMILIES:
        for table in xtables.legacy_tables(family):
            with suppress(OSError):
                content = xtables.legacy_content(family, table)
                yield from (f"{_FAMILIES[ADDRESS_FAMILY[family]]} {table} {chain}" for chain in content.rules)
