"""Exchanges with primaries: many zones of one primary take turns."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from fake_upstream import until

from kdns.dns.message import query
from kdns.dns.query import QR
from kdns.dns.types import AXFR
from kdns.net import HostPort
from kdns.upstream.io import peers


async def test_transfers_from_one_primary_are_bounded() -> None:
    """A catalog may have 10,000 zones, which all want to be transferred at once."""
    open_now: list[int] = [0]

    async def primary(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.append(open_now[-1] + 1)
        packet = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        await asyncio.sleep(0.01)
        response = packet[:2] + QR.to_bytes(2, "big") + packet[4:]
        writer.write(len(response).to_bytes(2, "big") + response)
        await reader.read()
        open_now.append(open_now[-1] - 1)
        writer.close()
        await writer.wait_closed()

    async def transfer(number: int) -> int:
        async with aclosing(peers.messages(address, query(f"z{number}.example.", AXFR), 10)) as messages:
            return len(await anext(messages))

    server = await asyncio.start_server(primary, "127.0.0.1", 0)
    async with server:
        address = HostPort("127.0.0.1", server.sockets[0].getsockname()[1])
        sizes = await asyncio.gather(*map(transfer, range(100)))
        await until(lambda: not open_now[-1])
    assert all(sizes)
    assert max(open_now) <= 2 * peers.TRANSFERS_AT_ONCE, "the primary sees late that a connection was closed"
