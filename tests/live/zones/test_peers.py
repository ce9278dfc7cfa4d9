"""Exchanges with primaries: many zones of one primary take turns, and only their own messages count."""

import asyncio
from contextlib import aclosing

import pytest
from fake_upstream import RECORD, answer, fake_server, until

from kdns.dns.message import query
from kdns.dns.query import QR
from kdns.dns.types import AXFR, SOA
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


@pytest.mark.parametrize("change", ["id", "name", "type", "query", "opcode", "no question"])
async def test_a_datagram_that_does_not_answer_is_ignored(change: str) -> None:
    packet = query("z.example.", SOA)

    def responses(packet: bytes) -> list[bytes]:
        forged = answer(packet, RECORD)
        forged = {
            "id": bytes((forged[0] ^ 1,)) + forged[1:],
            "name": forged.replace(b"\x01z", b"\x01y", 1),
            "type": answer(query("z.example.", AXFR)),
            "query": packet,
            "opcode": forged[:2] + bytes((forged[2] | 0x20,)) + forged[3:],
            "no question": forged[:4] + bytes(8),
        }[change]
        return [forged, answer(packet, b"")]

    async with fake_server(responses) as server:
        received = await peers.datagram(HostPort("127.0.0.1", server.port), packet, 5)
    assert received == answer(packet, b"")
