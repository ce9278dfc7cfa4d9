"""Interface and rules of a node-local DNS cache, for as long as the process serves it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from kdns import logs
from kdns.errors import ApplyError
from kdns.node_local import rules
from kdns.node_local.io import interface
from kdns.node_local.settings import NodeLocal
from kdns.proxy.nftables.io import nft
from kdns.runtime.metrics import Counters
from kdns.runtime.tasks import observed

log = logs.get(__name__)

CHECK_S: Final = 60.0
"""How often it is made sure that both are still there."""


@asynccontextmanager
async def established(wanted: NodeLocal, errors: Counters) -> AsyncIterator[None]:
    """Inside, interface and rules are there; what is missing is repaired, and `errors` counts repairs that failed.

    ApplyError where they cannot be made at the start. Where the block fails, what was there before it stays: it may be
    that of a running cache, which has the port.
    """
    before = await _present(wanted)
    try:
        await _establish(wanted)
        task = observed(_keep(wanted, errors), "node-local cache")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))
    except BaseException:
        now = await _present(wanted)
        interface_made = "" if before.interface else now.interface
        await _remove(replace(wanted, interface=interface_made, has_rules=now.has_rules and not before.has_rules))
        raise
    if not wanted.is_kept:
        await _remove(wanted)


async def _present(wanted: NodeLocal) -> NodeLocal:
    """What of it there is now."""
    is_link = any(name == wanted.interface for _, name in socket.if_nameindex())
    has_rules = wanted.has_rules and not await nft.check(rules.DELETION)
    return replace(wanted, interface=wanted.interface if is_link else "", has_rules=has_rules)


async def _establish(wanted: NodeLocal) -> bool:
    was_missing = False
    if wanted.interface:
        was_missing = await asyncio.to_thread(interface.establish, wanted.interface, wanted.addresses)
    if wanted.has_rules:
        await nft.apply(rules.ruleset(wanted.addresses, wanted.ports, wanted.health_port))
    return was_missing


async def _keep(wanted: NodeLocal, errors: Counters) -> None:
    while True:
        await asyncio.sleep(CHECK_S)
        try:
            if await _establish(wanted):
                log.warning("node-local interface was gone or lacked an address", interface=wanted.interface)
        except ApplyError as error:
            errors.tally("interface_add" if error.argv == ("netlink",) else "nftables").count += 1
            log.error("node-local cache not repaired", reason=str(error))  # noqa: TRY400 - the reason is enough


async def _remove(wanted: NodeLocal) -> None:
    try:
        if wanted.has_rules:
            await nft.apply(rules.removal())
        if wanted.interface:
            await asyncio.to_thread(interface.remove, wanted.interface)
    except ApplyError as error:
        log.error("node-local cache not removed", reason=str(error))  # noqa: TRY400 - the reason is enough
