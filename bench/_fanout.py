"""Watch fan-out: many clients hear of changes that come at a steady rate; how long each event takes to each of them."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass, field

from _http import connected
from _process import cpu_s
from _servers import Server

SETTLE_S = 0.5


@dataclass(frozen=True, slots=True)
class FanOut:
    """Milliseconds from the moment before a change is sent to its arrival at a client."""

    events: int
    seconds: float
    p50_ms: float
    p99_ms: float
    most_ms: float
    cpu_percent: float
    write_p99_ms: float


@dataclass
class _Watcher(asyncio.Protocol):
    """Reads a watch with as little work as possible: when did each revision arrive?"""

    server: Server
    arrived: list[tuple[int, float]] = field(default_factory=list)
    _rest: bytes = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP
        request = self.server.watch()
        head = f"{request.method} {request.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        transport.write(f"{head}Content-Length: {len(request.body)}\r\n\r\n".encode() + request.body)

    def data_received(self, data: bytes) -> None:
        now_s = time.perf_counter()
        text, end = self._rest + data, 0
        for found in self.server.seen.finditer(text):
            self.arrived.append((int(found[1]), now_s))
            end = found.end()
        self._rest = text[max(end, len(text) - 64) :]


async def fan_out(server: Server, watchers: int, rate: float, seconds: float) -> FanOut:
    """Change one object `rate` times a second while so many clients watch."""
    loop = asyncio.get_running_loop()
    clients = [_Watcher(server) for _ in range(watchers)]
    transports = [(await loop.create_connection(lambda c=c: c, "127.0.0.1", server.port))[0] for c in clients]  # type: ignore[misc]
    await asyncio.sleep(SETTLE_S)
    sent_s: dict[int, float] = {}
    replies: list[float] = []
    async with connected(server.port) as connection:
        began_s, cpu_before_s = time.perf_counter(), cpu_s(server.pid)
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began_s + number / rate - time.perf_counter()))
            request, now_s = server.change(number), time.perf_counter()
            answer = await connection(request.method, request.path, request.body)
            replies.append((time.perf_counter() - now_s) * 1e3)
            sent_s[server.revision(answer.body)] = now_s
        took_s, cpu_after_s = time.perf_counter() - began_s, cpu_s(server.pid)
        await asyncio.sleep(SETTLE_S)
    for transport in transports:
        transport.abort()
    delays = [(at_s - sent_s[each]) * 1e3 for client in clients for each, at_s in client.arrived if each in sent_s]
    if len(delays) < watchers * len(sent_s):
        raise SystemExit(f"{watchers * len(sent_s) - len(delays)} events did not arrive")
    hundredths = statistics.quantiles(delays, n=100)
    return FanOut(
        len(delays),
        took_s,
        hundredths[49],
        hundredths[98],
        max(delays),
        (cpu_after_s - cpu_before_s) / took_s * 100,
        statistics.quantiles(replies, n=100)[98],
    )
