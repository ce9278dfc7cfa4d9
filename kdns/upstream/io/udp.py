"""Queries over UDP, with protection against forged responses (RFC 5452).

An off-path attacker has to guess a query's port, its id and the case of its letters. Each socket has a random port from
the kernel, and is used for few queries and a short time. Sockets are connected, so the kernel drops packets from other
sources. If a socket gets several wrong messages, its queries are repeated over TCP.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from kdns.dns.query import HEADER_BYTES, Query
from kdns.runtime.poller import WHILE_READABLE
from kdns.upstream.framing import Key
from kdns.upstream.io.endpoint import Endpoint
from kdns.upstream.io.exchanges import Counts, Exchanges, Pending, unreachable
from kdns.upstream.io.streams import Streams
from kdns.upstream.message import (
    body_of,
    has_question,
    in_random_case,
    is_response,
    repeats_question,
)
from kdns.upstream.upstream import UpstreamError, UpstreamUnreachableError

SOCKETS: Final = 16
"""Sockets of an upstream that new queries are spread over at random; a power of two."""
QUERIES_OF_SOCKET: Final = 64
SOCKET_S: Final = 10.0
"""The most queries and the longest age of a socket; then it is retired, and closed after its last response."""
MAX_WRONG: Final = 10
"""After this many messages that match no query, a socket is closed and its queries are repeated over TCP."""
RECEIVE_BYTES: Final = 65535

_ONE_QUESTION: Final = b"\x00\x01"
_DRAWN_BYTES: Final = 3
"""Random bytes of a query besides those for its letters: one chooses the socket, two are the id."""
_ID_BYTES: Final = 2
_FLAGS_BYTES: Final = HEADER_BYTES - _ID_BYTES


class UdpSockets:
    """The sockets of one upstream. `keeps_case` is False once the server changed a name's case over UDP and TCP."""

    def __init__(self, endpoint: Endpoint, exchanges: Exchanges, tcp: Streams, counts: Counts) -> None:
        self.keeps_case = True
        self.counts = counts
        self._endpoint, self._exchanges, self._tcp = endpoint, exchanges, tcp
        self._slots: list[UdpSocket | None] = [None] * SOCKETS
        self._retired: set[UdpSocket] = set()

    def exchange(self, query: Query, timeout_s: float, client: str) -> Pending:
        """Sends a query. The response is as received, with another id and spelling than the query's."""
        packet = query.packet
        body = packet[2:] if query.is_plain else body_of(query)
        question = packet[HEADER_BYTES : query.question_end]
        drawn = self._exchanges.entropy.take(_DRAWN_BYTES + len(question))
        if self.keeps_case:
            question = in_random_case(question, drawn[_DRAWN_BYTES:])
        pending = self._exchanges.begin(timeout_s, question, client)
        try:
            udp_socket = self._chosen(drawn[0] % SOCKETS, pending.deadline_s - timeout_s)
        except UpstreamError:
            self._exchanges.end(pending)
            raise
        message_id = drawn[1:_DRAWN_BYTES]
        while message_id in udp_socket.pending or message_id in udp_socket.late:
            message_id = self._exchanges.entropy.take(_ID_BYTES)
        pending.query, pending.retry = query, self._repeated
        end = _FLAGS_BYTES + len(question)
        udp_socket.send(message_id, pending, b"".join((message_id, body[:_FLAGS_BYTES], question, body[end:])))
        return pending

    def tidy(self, now_s: float) -> None:
        for udp_socket in self._slots:
            if udp_socket is not None and now_s >= udp_socket.end_s:
                udp_socket.retire()

    def close(self) -> None:
        for udp_socket in [udp_socket for udp_socket in self._slots if udp_socket] + [*self._retired]:
            udp_socket.fail(UpstreamError("the upstream is no longer used"))

    def remove(self, udp_socket: UdpSocket) -> None:
        self.retire(udp_socket)
        if udp_socket in self._retired:
            self._retired.discard(udp_socket)
            self._exchanges.poller.remove(udp_socket.socket)
            self._exchanges.release_descriptor()

    def retire(self, udp_socket: UdpSocket) -> None:
        if self._slots[udp_socket.slot] is udp_socket:
            self._slots[udp_socket.slot] = None
            self._retired.add(udp_socket)

    def _chosen(self, slot: int, now_s: float) -> UdpSocket:
        udp_socket = self._slots[slot]
        if udp_socket is not None and udp_socket.queries_left > 0 and now_s < udp_socket.end_s:
            self.counts.reused += 1
            return udp_socket
        if not self._exchanges.take_descriptor():
            udp_socket = udp_socket or next((other for other in self._slots if other), None)
            if udp_socket is None:
                raise UpstreamUnreachableError(f"all {self._exchanges.max_descriptors} descriptors are in use")
            self.counts.reused += 1
            return udp_socket
        try:
            fresh = UdpSocket(self, self._endpoint.udp(), slot, now_s + SOCKET_S)
        except OSError as error:
            self._exchanges.release_descriptor()
            raise unreachable(error) from error
        if udp_socket is not None:
            udp_socket.retire()
        self._slots[slot] = fresh
        self._exchanges.poller.add(fresh.socket, WHILE_READABLE, fresh.receive)
        self.counts.opened += 1
        return fresh

    async def _repeated(self, pending: Pending) -> bytes:
        """Over TCP, which cannot be forged without seeing the connection."""
        assert pending.query is not None  # noqa: S101 - `exchange` sets both
        timeout_s, client, deadline_s = pending.timeout_s, pending.client, pending.deadline_s
        response = await self._tcp.exchange(pending.query, timeout_s, client, pending.question, deadline_s)
        if pending.has_other_case and not response.startswith(pending.question, HEADER_BYTES):
            self.keeps_case = False
        return response


class UdpSocket:
    """One port and its pending queries; `late` are the ids of queries that ended without a response."""

    __slots__ = ("_is_retired", "_pool", "_wrong", "end_s", "late", "pending", "queries_left", "slot", "socket")

    def __init__(self, pool: UdpSockets, sock: socket.socket, slot: int, end_s: float) -> None:
        self.socket, self.slot, self.end_s = sock, slot, end_s
        self.queries_left = QUERIES_OF_SOCKET
        self.pending: dict[Key, Pending] = {}
        self.late: set[Key] = set()
        self._pool = pool
        self._wrong = 0
        self._is_retired = False

    def send(self, message_id: bytes, pending: Pending, packet: bytes) -> None:
        """If the packet cannot be sent, all queries of the socket fail."""
        pending.key, pending.holder, pending.is_sent = message_id, self, True
        self.pending[message_id] = pending
        self.queries_left -= 1
        try:
            self.socket.send(packet)
        except OSError as error:
            self.fail(unreachable(error))

    def receive(self, _events: int) -> None:
        """Reads one message; the poller calls again while there are more."""
        try:
            message = self.socket.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:  # ICMP port unreachable
            self.fail(unreachable(error))
            return
        message_id = message[:2]
        pending = self.pending.get(message_id)
        if (
            pending is not None
            and message.startswith(pending.question, HEADER_BYTES)
            and message[2] & 0xF8 == 0x80  # a response to a query
            and message[4:6] == _ONE_QUESTION
        ):
            self._accept(pending, message)
        else:
            self._reject(message, pending)

    def drop(self, pending: Pending) -> None:
        pending.holder = None
        if self.pending.pop(pending.key, None) is not None:
            self.late.add(pending.key)
            if self._is_retired and not self.pending:
                self._pool.remove(self)

    def retire(self) -> None:
        if not self._is_retired:
            self._is_retired = True
            self._pool.retire(self)
            if not self.pending:
                self._pool.remove(self)

    def fail(self, error: UpstreamError) -> None:
        self._end(lambda pending: pending.fail(error))

    def _accept(self, pending: Pending, message: bytes) -> None:
        del self.pending[pending.key]
        pending.holder = None
        if self._is_retired and not self.pending:
            self._pool.remove(self)
        if pending.reply is None:
            pending.set_result(message)

    def _reject(self, message: bytes, pending: Pending | None) -> None:
        ignored = self._pool.counts.ignored
        is_answer = pending is not None and is_response(message) and repeats_question(message, pending.question)
        if pending is not None and is_answer and not self._pool.keeps_case:
            self._accept(pending, message)
            return
        if pending is None and message[:2] in self.late:
            self.late.discard(message[:2])
            ignored["late"] += 1
            return
        if not is_response(message):
            ignored["malformed"] += 1
        elif pending is None:
            ignored["id"] += 1
        elif is_answer:
            ignored["case"] += 1
            pending.has_other_case = True
            _repeat(pending)
        else:
            ignored["question"] += 1
            if not has_question(message):
                _repeat(pending)
        self._wrong += 1
        if self._wrong >= MAX_WRONG:
            self._end(_repeat)

    def _end(self, finish: Callable[[Pending], None]) -> None:
        self._is_retired = True
        self._pool.retire(self)
        waiting, self.pending = self.pending, {}
        self._pool.remove(self)
        for pending in waiting.values():
            pending.holder = None
            finish(pending)


def _repeat(pending: Pending) -> None:
    if pending.reply is None:
        pending.set_result(b"")
