"""Removes proxies' tables from nftables: kdns's and those of kube-proxy's mode nftables."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kdns.errors import ApplyError
from kdns.netlink.io.nftables import tables
from kdns.proxy.nftables.io import nft
from kdns.proxy.nftables.objects import TABLE
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import CleanUp, Footprint, RuleAuthors
from kdns.runtime.requirements import CAPABILITY


@dataclass(frozen=True, slots=True)
class NftablesPart:
    """kdns's tables, in both families."""


KUBE_PROXY: Final = "kube-proxy"
"""The tables of kube-proxy."""
_FAMILIES: Final[Mapping[int, str]] = {socket.AF_INET: "ip", socket.AF_INET6: "ip6"}


async def remove_tables(settings: Settings, kept: Footprint) -> Sequence[str]:
    del settings
    names = {TABLE} if kept.part(NftablesPart) is None else set()
    names |= set() if kept.keep_kube_proxy else {KUBE_PROXY}
    try:
        known = await tables()
    except ApplyError as error:
        if isinstance(error.__cause__, PermissionError):
            raise ApplyError(error.argv, f"{error.stderr}; {CAPABILITY}") from error
        return []  # a kernel without nftables has no tables
    existing = sorted((name, _FAMILIES[of]) for of, name in known if name in names and of in _FAMILIES)
    if existing:
        await nft.apply(*(f"delete table {family} {name}" for name, family in existing))
    return [f"table {family} {name}" for name, family in existing]


async def authors() -> RuleAuthors:
    """By the names of the tables."""
    try:
        names = {name for family, name in await tables() if family in _FAMILIES}
    except ApplyError:
        names = set()  # the clean-up says why
    return RuleAuthors(TABLE in names, KUBE_PROXY in names)


TABLES: Final = CleanUp(remove_tables, authors)
CLEAN_UPS: Final = (TABLES,)
