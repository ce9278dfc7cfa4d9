"""Clients that connect to the first Service all the time while its endpoints come and go."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from small_cluster import CLIENTS, ENDPOINTS
from world import World

ANSWER_S: Final = 60.0
VIP: Final = ("10.96.0.1", "fd00:96::1")


@dataclass(slots=True)
class Load:
    """What clients met: exchanges by the address of the endpoint, failures, and exchanges with one that was gone.

    `resend_s`: when a client of UDP without an answer asks once more, as resolvers do.
    """

    world: World
    resend_s: float = ANSWER_S
    done: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    gone_since_s: dict[str, float] = field(default_factory=dict)
    ports: Iterator[int] = field(default_factory=lambda: count(10000))
    is_over: bool = False

    async def client(self, who: str, kind: socket.SocketKind, which: int) -> None:
        """One exchange after the other, each on a connection of its own."""
        while not self.is_over:
            started_s = time.monotonic()
            try:
                async with asyncio.timeout(ANSWER_S):
                    end = await self._exchange(who, kind, which)
            except (OSError, TimeoutError) as error:
                self.failures.append(f"{who} {kind.name} {VIP[which]}: {error!r}")
                continue
            self.done[end] += 1
            if started_s > self.gone_since_s.get(end, started_s):
                self.failures.append(f"{who} {kind.name} {VIP[which]}: came to {end}, which was gone")

    async def _exchange(self, who: str, kind: socket.SocketKind, which: int) -> str:
        if kind is socket.SOCK_STREAM:
            return await self.answer(await self.connected(who, kind, which))
        with suppress(TimeoutError):
            async with asyncio.timeout(self.resend_s):
                return await self._datagrams(who, which)
        return await self._datagrams(who, which)

    async def _datagrams(self, who: str, which: int) -> str:
        """From a port that is new: one used before would be the flow before."""
        return await self.answer(await self.connected(who, socket.SOCK_DGRAM, which, next(self.ports)))

    async def connected(self, who: str, kind: socket.SocketKind, which: int, port: int = 0) -> socket.socket:
        client = self.world.socket(who, CLIENTS[who][which], kind, port)
        await asyncio.get_running_loop().sock_connect(client, (VIP[which], 80))
        return client

    async def answer(self, client: socket.socket) -> str:
        """Who answers on this connection; ends it."""
        loop = asyncio.get_running_loop()
        with client:
            await loop.sock_sendall(client, b"hello")
            return (await loop.sock_recv(client, 100)).decode().split()[0]

    def coming(self, ready: Iterable[str]) -> None:
        for end in ready:
            for address in ENDPOINTS[end]:
                self.gone_since_s.pop(address, None)

    def gone(self, ready: Collection[str]) -> None:
        """All but these have been taken away."""
        for end, addresses in ENDPOINTS.items():
            for address in addresses if end not in ready else ():
                self.gone_since_s.setdefault(address, time.monotonic())
