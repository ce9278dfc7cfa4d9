"""Whose rules the kernel holds, by what only one author writes: table names, and kdns's mark in table nat."""

from __future__ import annotations

import socket
from typing import NamedTuple

from kdns.errors import ApplyError
from kdns.net import Family
from kdns.netlink.io.nftables import tables
from kdns.proxy.nftables.io.clean_up import KUBE_PROXY
from kdns.proxy.nftables.objects import TABLE
from kdns.proxy.xtables.io.clean_up import has_rules_of_others, marked


class RuleAuthors(NamedTuple):
    """Whether kdns and a kube-proxy have rules, and the back ends and families whose chains kdns wrote last."""

    has_kdns: bool
    has_kube_proxy: bool
    marked: frozenset[tuple[str, Family]] = frozenset()


async def rule_authors() -> RuleAuthors:
    """Returns the current authors. Unreadable rules are treated as absent."""
    try:
        names = {name for family, name in await tables() if family in {socket.AF_INET, socket.AF_INET6}}
    except ApplyError:
        names = set()  # the clean-up of nftables says why
    own = await marked()
    has_kube_proxy = KUBE_PROXY in names or await has_rules_of_others()
    return RuleAuthors(TABLE in names or bool(own), has_kube_proxy, own)
