"""Starts mode ipvs: sysctls, timeouts, and the programs of iptables for the rules around the virtual servers."""

from __future__ import annotations

import asyncio
from typing import Final

from kdns.errors import ApplyError
from kdns.netlink.io.ipvs import ipvs
from kdns.netlink.ipvs import Timeouts
from kdns.proxy.ipvs.io.counters import connections
from kdns.proxy.ipvs.io.probe import unsupported
from kdns.proxy.ipvs.io.proxier import IpvsProxier
from kdns.proxy.ipvs.io.sysctls import apply_ipvs_sysctls
from kdns.proxy.ipvs.ipvs import IpvsOptions
from kdns.proxy.ipvs.mode import MODE, IpvsSettings
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Runtime
from kdns.proxy.xtables.io.programs import chosen

_MOST_S: Final = 2**31 - 1
"""A message has no room for more."""
_EVERYWHERE_S: Final = _MOST_S // 1000
"""The kernel measures in ticks, at most 1000 a second."""


async def start(settings: Settings) -> IpvsProxier:
    """Nothing is in the kernel yet but settings."""
    programs, served = await chosen()
    await asyncio.to_thread(_prepare, settings.section(IpvsSettings))
    return IpvsProxier(programs, served, IpvsOptions.of(settings))


def timeouts(settings: IpvsSettings) -> Timeouts:
    """The kernel supports whole seconds only."""
    values = settings.tcp_timeout_s, settings.tcp_fin_timeout_s, settings.udp_timeout_s
    return Timeouts(*(min(max(round(value), 1), _MOST_S) if value > 0 else 0 for value in values))


def _prepare(settings: IpvsSettings) -> None:
    apply_ipvs_sysctls(settings)
    wanted = timeouts(settings)
    if any(wanted):
        try:
            with ipvs() as kernel:
                kernel.set_timeouts(wanted)
        except OSError as error:
            found = f"timeouts of IPVS, {wanted}: {error.strerror or error}"
            raise ApplyError(
                ("netlink",), f"{found}; expected {_EVERYWHERE_S} s or less, as every kernel takes"
            ) from error


RUNTIME: Final = Runtime(MODE, unsupported, start, connections)
