"""DNS over TCP (RFC 7766): queries may be pipelined; idle time, number and memory are limited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from kdns.dnsserver.blocks import WireResponse
from kdns.dnsserver.io.exchange import log_failure
from kdns.dnsserver.io.stream import MAX_CONNECTION_PENDING, StreamConnection, StreamListener
from kdns.runtime.connections import is_lost

READ_BYTES: Final = 4096
"""The most bytes that are read of one connection at a time."""
TURN: Final = 16
"""Queries of one connection to answer in a turn."""

_received = memoryview(bytearray(READ_BYTES))
"""The read buffer of all connections, which copy their bytes at once."""


class TcpConnection(StreamConnection, asyncio.BufferedProtocol):
    """One client: length-prefixed messages in, answers out, as soon as they are ready.

    While an answer is unread, no more queries are answered. A zone transfer sends one message in each turn of the
    connection, and later queries wait for its end.
    """

    def __init__(self, listener: StreamListener) -> None:
        super().__init__(listener)
        self._buffer = b""
        self._transfers: list[Iterator[bytes]] = []

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        self._buffer += _received[:nbytes]
        self._proceed()

    def _answer_turn(self) -> None:
        if self._transfers:
            self._transfer()
            return
        received, position = self._buffer, 0
        for _ in range(TURN):
            if position == len(received) or self._is_full or self._has_last_query:
                break
            end = _message_end(received, position)
            if end > len(received):
                break
            self._answer(received[position + 2 : end])
            position = end
        if position:
            self._buffer = received[position:]

    @property
    def _is_full(self) -> bool:
        return self._is_unread or bool(self._transfers) or len(self._answering.waiting) >= MAX_CONNECTION_PENDING

    @property
    def _is_answerable(self) -> bool:
        if self._transfers:
            return not self._is_unread
        received = self._buffer
        is_taken = bool(received) and not self._is_full and not self._has_last_query
        return is_taken and _message_end(received, 0) <= len(received)

    @property
    def _is_answered(self) -> bool:
        return self._is_ending and not (self._answering.waiting or self._is_waiting or self._transfers)

    @property
    def _received_bytes(self) -> int:
        return len(self._buffer)

    @property
    def _is_incomplete(self) -> bool:
        return bool(self._buffer)

    def _answer(self, packet: bytes) -> None:
        received_s = self._loop.time()
        self._count_query()
        outcome = self._answering.answer(packet, self._client, received_s)
        if isinstance(outcome, WireResponse):
            self._send(outcome)
            if not outcome.wire and outcome.request is None:
                self._end_after_query()  # not DNS: the next bytes cannot be parsed either
        else:
            self._answering.wait(outcome, packet, self._client, received_s, self._answer_later).step()

    def _answer_later(self, response: WireResponse) -> None:
        self._send(response)
        self._proceed()

    def _send(self, response: WireResponse) -> None:
        if response.wire:
            self._write(response.wire)
            response.sent(self._loop.time())
        if response.more_messages:
            self._transfers.append(response.more_messages)

    def _transfer(self) -> None:
        """Sends the next message of the first transfer; if that fails, the connection is aborted."""
        try:
            message = next(self._transfers[0], None)
        except Exception as failure:  # noqa: BLE001 - one client must not end the others
            log_failure(failure, b"", self._server.label, with_stack=False)
            self._transport.abort()
            return
        if message is None:
            self._transfers.pop(0)
        else:
            self._write(message)
        self._state = ""

    def _write(self, response: bytes) -> None:
        if not is_lost(self._transport):
            self._transport.write(framed(response))


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(2, "big") + message


def _message_end(received: bytes, start: int) -> int:
    """The end of the message at `start`, which may be incomplete (RFC 1035 §4.2.2)."""
    return start + 2 + int.from_bytes(received[start : start + 2], "big")


class TcpListener(StreamListener):
    """DNS over TCP; with `tls`, DNS over TLS (RFC 7858)."""

    protocol = TcpConnection
