"""Exchanges with primaries and secondaries: one message over UDP, or a stream of messages over TCP (RFC 5936)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final

from kdns.dns.query import HEADER_BYTES, QR
from kdns.net import HostPort
from kdns.runtime.os_errors import os_reason
from kdns.upstream.message import has_question, repeats_question
from kdns.upstream.upstream import UpstreamError, UpstreamTimeoutError, UpstreamUnreachableError

READ_BYTES: Final = 128 << 10
"""The most bytes of one transfer that wait for the caller."""
TRANSFERS_AT_ONCE: Final = 10
DATAGRAMS_AT_ONCE: Final = 100
"""The most concurrent exchanges with one peer: a catalog of 10,000 zones must not take as many descriptors."""

_transfers: defaultdict[HostPort, asyncio.Semaphore] = defaultdict(partial(asyncio.Semaphore, TRANSFERS_AT_ONCE))
_datagrams: defaultdict[HostPort, asyncio.Semaphore] = defaultdict(partial(asyncio.Semaphore, DATAGRAMS_AT_ONCE))


class _Datagrams(asyncio.DatagramProtocol):
    """Waits for the first matching response; ignores other packets."""

    def __init__(self, packet: bytes) -> None:
        self._packet = packet
        self.response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: object) -> None:
        del addr
        if not self.response.done() and _answers(self._packet, data):
            self.response.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.response.done():
            self.response.set_exception(UpstreamUnreachableError(str(exc)))


async def datagram(address: HostPort, packet: bytes, timeout_s: float, source: str = "") -> bytes:
    loop = asyncio.get_running_loop()
    local = (source, 0) if source else None
    async with _datagrams[address]:
        try:
            transport, protocol = await loop.create_datagram_endpoint(
                lambda: _Datagrams(packet), local_addr=local, remote_addr=(address.host, address.port)
            )
        except OSError as error:
            raise UpstreamUnreachableError(os_reason(error)) from error
        try:
            transport.sendto(packet)
            async with asyncio.timeout(timeout_s):
                return await protocol.response
        except TimeoutError as error:
            raise UpstreamTimeoutError(f"no response within {timeout_s:g} s") from error
        finally:
            protocol.response.cancel()
            transport.close()


async def messages(address: HostPort, packet: bytes, timeout_s: float, source: str = "") -> AsyncGenerator[bytes, None]:
    async with _transfers[address], aclosing(_messages(address, packet, timeout_s, source)) as received:
        async for message in received:
            yield message


async def _messages(address: HostPort, packet: bytes, timeout_s: float, source: str) -> AsyncGenerator[bytes, None]:
    local = (source, 0) if source else None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, limit=READ_BYTES, local_addr=local
            )
    except TimeoutError as error:
        raise UpstreamTimeoutError(f"no connection within {timeout_s:g} s") from error
    except OSError as error:
        raise UpstreamUnreachableError(os_reason(error)) from error
    try:
        writer.write(len(packet).to_bytes(2, "big") + packet)
        while True:
            async with asyncio.timeout(timeout_s):
                size_bytes = int.from_bytes(await reader.readexactly(2), "big")
                message = await reader.readexactly(size_bytes)
            if message[:2] != packet[:2] or len(message) < HEADER_BYTES:
                raise UpstreamError("a message with another id")
            await asyncio.sleep(0)  # buffered messages are read without yielding to the loop
            yield message
    except TimeoutError as error:
        raise UpstreamTimeoutError(f"no message within {timeout_s:g} s") from error
    except (OSError, asyncio.IncompleteReadError) as error:
        raise UpstreamError("the connection ended before the transfer did") from error
    finally:
        writer.close()


def _answers(packet: bytes, response: bytes) -> bool:
    """Whether `response` has the id, opcode and question of `packet`; errors need no question."""
    is_response = len(response) >= HEADER_BYTES and response[:2] == packet[:2] and response[2] >= QR >> 8
    if not is_response or (response[2] ^ packet[2]) & 0x78:
        return False
    end = packet.find(b"\0", HEADER_BYTES) + 5
    return repeats_question(response, packet[HEADER_BYTES:end]) or (
        not has_question(response) and response[3] & 15 != 0
    )
