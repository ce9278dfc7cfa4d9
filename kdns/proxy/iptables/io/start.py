"""Starts mode iptables: the programs of the node's back end, and the optional features that it uses."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from kdns.errors import ApplyError
from kdns.netlink.io import nfacct
from kdns.proxy.iptables.base_chains import INVALID_PACKETS, LOCALHOST_PACKETS, Features
from kdns.proxy.iptables.io.proxier import IptablesProxier
from kdns.proxy.iptables.mode import MODE
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Runtime
from kdns.proxy.xtables.io.programs import CHECK, Programs, choose, chosen
from kdns.proxy.xtables.settings import IptablesSettings

_LIBERAL: Final = Path("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal")
_SWITCH_INTERVAL_S: Final = 0.001
"""How long a thread that makes the text of a restore keeps the interpreter while the event loop waits."""
_CHAINS_PER_SECTION: Final = {"nft": 2000, "legacy": 0}


async def unsupported(settings: Settings) -> str:
    del settings
    _, reason = await choose()
    return reason


async def start(settings: Settings) -> IptablesProxier:
    programs, served = await chosen()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    return IptablesProxier(programs, served, await features(programs, settings))


async def features(programs: Programs, settings: Settings) -> Features:
    is_liberal = settings.conntrack.tcp_be_liberal
    with suppress(OSError):
        is_liberal |= _LIBERAL.read_text(encoding="ascii").strip() == "1"
    return Features(
        nfacct=await _counts_by_name(programs),
        tcp_be_liberal=is_liberal,
        chains_per_section=_CHAINS_PER_SECTION[programs.backend],
        masquerade_mark=settings.section(IptablesSettings).mark,
    )


async def _counts_by_name(programs: Programs) -> bool:
    """Whether rules may count by nfacct; creates the counters."""
    try:
        await asyncio.to_thread(nfacct.ensure_counters, (INVALID_PACKETS, LOCALHOST_PACKETS))
        rule = f"-A {CHECK} -m nfacct --nfacct-name {INVALID_PACKETS} -j DROP"
        return not await programs.check("IPv4", {"filter": (rule,)})
    except (ApplyError, OSError):
        return False


RUNTIME: Final = Runtime(MODE, unsupported, start)
