"""Writes the addresses of this machine to its Node, in a kubelet's place."""

from __future__ import annotations

import asyncio
from typing import Final

from kdns import logs
from kdns.cluster.io.connection import Connection, RestStats
from kdns.cluster.source import Source
from kdns.cluster.watch import Timing
from kdns.errors import ApiServerError
from kdns.net import Address
from kdns.netlink.io.addresses import primary_addresses, watch_node_addresses

RETRY_S: Final = 5.0
_REFUSED: Final = 4
"""The first digit of a status that does not change for the same request."""

log = logs.get(__name__)


async def report_addresses(source: Source, name: str) -> None:
    """Writes changed addresses until cancelled. Failures are retried, refusals are logged."""
    own: tuple[Address, ...] = ()
    noticed = asyncio.Event()

    def listed(addresses: tuple[Address, ...]) -> None:
        nonlocal own
        own = primary_addresses(addresses)
        noticed.set()

    async def write() -> None:
        written: tuple[Address, ...] = ()
        while True:
            await noticed.wait()
            noticed.clear()
            current = own
            if current in ((), written):
                continue
            try:
                await _write(source, name, current)
            except ApiServerError as error:
                log.warning("addresses of the Node not written", node=name, reason=str(error))
                if error.status // 100 != _REFUSED:
                    asyncio.get_running_loop().call_later(RETRY_S, noticed.set)
                    continue
            written = current

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch_node_addresses(listed), name="addresses of the machine")
        tasks.create_task(write(), name="addresses of the Node")


async def _write(source: Source, name: str, addresses: tuple[Address, ...]) -> None:
    rows = [{"type": "InternalIP", "address": str(address)} for address in addresses]
    status = {"addresses": [*rows, {"type": "Hostname", "address": name}]}
    async with Connection(source, RestStats(), Timing()) as api:
        await api.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
