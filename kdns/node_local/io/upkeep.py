"""The interface and rules of a node-local DNS cache, while the process serves it.

The rules make queries to the cluster IP bypass the Service, so they exist only while the cache listens: the Service
gets earlier and later queries. The interface exists longer, because sockets are bound to its addresses.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

from kdns import logs
from kdns.errors import ApplyError
from kdns.netlink.io.addresses import address_notices, removes_address
from kdns.node_local import rules
from kdns.node_local.io import interface
from kdns.node_local.settings import NodeLocal
from kdns.proxy.nftables.io import nft
from kdns.runtime.metrics import Counters
from kdns.runtime.tasks import observed

log = logs.get(__name__)

CHECK_S: Final = 60.0
PAUSE_S: Final = 1.0
"""How long at least between two repairs of the interface, which another program may remove again and again."""


@asynccontextmanager
async def linked(settings: NodeLocal, errors: Counters) -> AsyncIterator[None]:
    """Keeps the interface. Raises ApplyError at the start. One that was there before stays, also after a failure."""
    if not settings.interface:
        yield
        return
    was_there = any(name == settings.interface for _, name in socket.if_nameindex())
    establish = partial(asyncio.to_thread, interface.establish, settings.interface, settings.addresses)
    remove = partial(asyncio.to_thread, interface.remove, settings.interface)
    keep = partial(_keep_interface, settings, establish, errors)
    async with _present(settings, was_there, establish, remove, keep):
        yield


@asynccontextmanager
async def untracked(settings: NodeLocal, errors: Counters) -> AsyncIterator[None]:
    if not settings.has_rules:
        yield
        return
    was_there = not await nft.check(rules.DELETION)
    load = partial(nft.apply, rules.ruleset(settings.addresses, settings.ports))
    remove, keep = partial(nft.apply, rules.removal()), partial(_keep_rules, load, errors)
    async with _present(settings, was_there, load, remove, keep):
        yield


@asynccontextmanager
async def _present(
    settings: NodeLocal,
    was_there: bool,
    make: Callable[[], Awaitable[object]],
    remove: Callable[[], Awaitable[None]],
    upkeep: Callable[[], Coroutine[Any, Any, None]],
) -> AsyncIterator[None]:
    stays = was_there
    try:
        await make()
        task = observed(upkeep(), "node-local cache")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))
        stays = settings.is_kept
    finally:
        if not stays:
            await _removed(remove)


async def _keep_interface(settings: NodeLocal, establish: Callable[[], Awaitable[bool]], errors: Counters) -> None:
    own = frozenset(settings.addresses)
    with address_notices(lambda buffer: removes_address(buffer, own)) as removed:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(removed.wait(), CHECK_S)
            removed.clear()
            try:
                if await establish():
                    log.warning("node-local interface repaired", interface=settings.interface)
            except ApplyError as error:
                _tell(error, errors, "interface_add")
            await asyncio.sleep(PAUSE_S)


async def _keep_rules(load: Callable[[], Awaitable[None]], errors: Counters) -> None:
    while True:
        await asyncio.sleep(CHECK_S)
        try:
            await load()
        except ApplyError as error:
            _tell(error, errors, "nftables")


def _tell(error: ApplyError, errors: Counters, what: str) -> None:
    errors.tally(what).count += 1
    log.error("node-local cache not repaired", reason=str(error))


async def _removed(remove: Callable[[], Awaitable[None]]) -> None:
    try:
        await remove()
    except ApplyError as error:
        log.error("node-local cache not removed", reason=str(error))  # noqa: TRY400 - the reason is enough
