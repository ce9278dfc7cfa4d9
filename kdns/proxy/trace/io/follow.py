"""Follows the connections of a packet on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from kdns.errors import ApplyError, InputError
from kdns.net import family_of, join_host_port
from kdns.netlink.conntrack import Connection, SocketAddress
from kdns.netlink.io.conntrack import connections
from kdns.proxy.plan.plan import FrontKey
from kdns.proxy.trace.live import concerns, counted, described
from kdns.proxy.trace.trace import Packet, Trace
from kdns.runtime.requirements import CAPABILITY

Count: TypeAlias = Callable[[], Awaitable[Mapping[FrontKey, int]]]
"""Returns the connections that the mode's rules have counted, by front."""
LOOK_S: Final = 0.25
"""The time between two looks; the kernel remembers a connection for much longer."""


async def follow(packet: Packet, trace: Trace, seconds: float, say: Callable[[str], None], count: Count | None) -> None:
    """Says each connection that is there or begins within so many seconds, and each change of its state.

    At the end it says what the kernel has counted. Raises InputError where connection tracking cannot be read.
    """
    before, end_s = await _counts(count), time.monotonic() + seconds
    say(f"Connections on this machine, followed for {seconds:g} s:")
    shown: dict[SocketAddress, str] = {}
    while True:
        for connection in await _connections(packet):
            if shown.get(connection.source) != connection.state:
                shown[connection.source] = connection.state
                say(f"  {described(connection, packet, trace)}")
        if time.monotonic() >= end_s:
            break
        await asyncio.sleep(min(LOOK_S, max(end_s - time.monotonic(), 0.0)))
    if not shown:
        where = join_host_port(str(packet.destination), packet.port)
        say(f"  none from {packet.source} to {where}/{packet.protocol} was tracked here")
    if trace.front and (text := counted(trace.front.key, before, await _counts(count))):
        say(f"  {text}")


async def _connections(packet: Packet) -> list[Connection]:
    try:
        return await asyncio.to_thread(
            connections, family_of(packet.destination), lambda found: concerns(packet, found)
        )
    except PermissionError as error:
        raise InputError(f"--live: connection tracking cannot be read: {CAPABILITY}") from error
    except OSError as error:
        raise InputError(f"--live: connection tracking cannot be read: {error.strerror}") from error


async def _counts(count: Count | None) -> Mapping[FrontKey, int]:
    try:
        return await count() if count else {}
    except (ApplyError, OSError):
        return {}  # the rules of the mode are not here
