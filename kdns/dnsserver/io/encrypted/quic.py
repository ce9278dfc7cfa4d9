"""DNS over QUIC (RFC 9250): aioquic's connections on bound sockets, within the limits of DNS over TCP."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from math import inf
from operator import call
from typing import Any, Final

from aioquic.buffer import Buffer  # type: ignore[attr-defined] # it is what its name says
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import (
    QuicHeader,
    QuicPacketType,
    encode_quic_retry,
    encode_quic_version_negotiation,
    pull_quic_header,
)
from aioquic.quic.retry import QuicRetryTokenHandler

from kdns.dns.query import Query, read_query
from kdns.dns.types import TCP_KEEPALIVE
from kdns.dnsserver.blocks import Server, WireResponse
from kdns.dnsserver.io.encrypted.tls import no_certificate, refused
from kdns.dnsserver.io.exchange import Answering, PendingQuery, log_failure
from kdns.dnsserver.io.fair_scheduler import FairScheduler
from kdns.dnsserver.io.request_metrics import Requests
from kdns.dnsserver.io.stream import CLOSE_S, Clients
from kdns.dnsserver.io.tcp import framed
from kdns.net import is_ipv6
from kdns.runtime.client_memory import Account
from kdns.serverblocks.listener_options import DEFAULTS, ClientAuth, TlsConfig

BURST: Final = 64
"""The most datagrams that are read in one iteration of the loop."""
MAX_WAITING: Final = 2048
"""The most waiting datagrams of all clients; a client's beyond its share are dropped."""
RECEIVE_BYTES: Final = 2048
SMALLEST_INITIAL_BYTES: Final = 1200
"""The minimum size of a client's first datagram (RFC 9000 §14.1)."""
MAX_UNVERIFIED: Final = 32
"""The most concurrent handshakes without an address check; further clients get a Retry first (RFC 9000 §8.1)."""
MAX_HELD_BYTES: Final = 256 * 1024
"""The limit of incomplete messages of one connection."""
WINDOW_BYTES: Final = 128 * 1024
MAX_UNSENT_BYTES: Final = 64 * 1024
"""The limit of unacknowledged answers of one connection; further requests wait."""
MAX_GAPS: Final = 64
"""The most out-of-order pieces of one connection.

aioquic compares each piece with all others, so thousands would delay other clients.
"""
CONNECTION_ID_BYTES: Final = 8
CLIENT_STREAMS: Final = 4
"""Ids of the client's bidirectional streams are multiples of this (RFC 9000 §2.1)."""


class DoqError(IntEnum):
    """Codes of streams and connections (RFC 9250 §4.3)."""

    NO_ERROR = 0
    INTERNAL_ERROR = 1
    PROTOCOL_ERROR = 2
    REQUEST_CANCELLED = 3
    EXCESSIVE_LOAD = 4


def quic_configuration(config: TlsConfig, idle_s: float) -> QuicConfiguration:
    """CorefileError for invalid files and for `client_auth`.

    Differs: aioquic cannot request certificates from clients.
    """
    if config.client_auth not in {ClientAuth.NOCERT, ClientAuth.REQUEST}:
        reason = "clients have no certificates over QUIC; expected `nocert`, or a separate block for quic://"
        raise refused(config, "client_auth with certificates", reason)
    configuration = QuicConfiguration(
        is_client=False,
        alpn_protocols=["doq"],
        idle_timeout=idle_s,
        max_data=WINDOW_BYTES,
        max_stream_data=WINDOW_BYTES,
        connection_id_length=CONNECTION_ID_BYTES,
    )
    try:
        configuration.load_cert_chain(config.cert, config.key)
    except (OSError, ValueError, TypeError) as error:  # TypeError: the key has a password
        raise no_certificate(config, error) from error
    return configuration


class QuicListener:
    """One bound socket and its connections.

    Datagrams are read in bursts and processed in the clients' turns, because they are costly.
    """

    def __init__(
        self,
        sock: socket.socket,
        server: Server,
        requests: Requests,
        clients: Clients,
        configuration: QuicConfiguration,
    ) -> None:
        self.server, self.requests, self.clients = server, requests, clients
        self.by_id: dict[bytes, QuicClient] = {}
        self.connections: dict[QuicClient, None] = {}
        self.unverified: set[QuicClient] = set()
        self.pending = 0
        self._socket, self._configuration = sock, configuration
        self._tokens = QuicRetryTokenHandler()
        self._turns = FairScheduler[Callable[[], None]](MAX_WAITING, call)
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)
        self._loop.add_reader(sock, self._drain)

    def send(self, data: bytes, client: Any) -> None:
        """A datagram that the kernel rejects is lost; QUIC retransmits."""
        try:
            self._socket.sendto(data, client)
        except OSError:
            self.requests.unsent += 1

    def use(self, configuration: QuicConfiguration) -> None:
        self._configuration = configuration

    async def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._drain()
        self._turns.drain()
        connections = tuple(self.connections)
        await asyncio.gather(*(client.drain() for client in connections))
        for client in connections:
            client.end(DoqError.NO_ERROR)
        self._socket.close()

    def _drain(self) -> None:
        turns = self._turns
        for _ in range(BURST):
            try:
                data, client = self._socket.recvfrom(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                continue
            if not turns.put(client[0], partial(self._take, data, client)):
                self.requests.shed += 1
        turns.run_now()

    def _take(self, data: bytes, client: Any) -> None:
        try:
            header = pull_quic_header(Buffer(data=data), host_cid_length=CONNECTION_ID_BYTES)
        except ValueError:
            return
        connection = self.by_id.get(header.destination_cid)
        if connection is None:
            connection = self._accepted(header, data, client)
        if connection is not None:
            connection.receive(data, client)

    def _accepted(self, header: QuicHeader, data: bytes, client: Any) -> QuicClient | None:
        """A new connection; None if the datagram starts none, or if the client has to prove its address first."""
        if header.packet_type == QuicPacketType.VERSION_NEGOTIATION or len(data) < SMALLEST_INITIAL_BYTES:
            return None
        versions = self._configuration.supported_versions
        if header.version is not None and header.version not in versions:
            answer = encode_quic_version_negotiation(
                source_cid=header.destination_cid, destination_cid=header.source_cid, supported_versions=versions
            )
            self.send(answer, client)
            return None
        if header.packet_type != QuicPacketType.INITIAL:
            return None
        original, retry_source = header.destination_cid, None
        if header.token:
            try:
                original, retry_source = (
                    self._tokens.validate_token(
                        address=client,
                        destination_cid=header.destination_cid,
                        token=header.token,
                        now=self._loop.time(),
                    ),
                    header.destination_cid,
                )
            except ValueError:
                return None
        elif len(self.unverified) >= MAX_UNVERIFIED:
            self._ask_for_token(header, client)
            return None
        connection = QuicClient(self, client)
        if not self.clients.quic_connections.add(connection, client[0], connection.evict):
            return None
        quic = QuicConnection(
            configuration=self._configuration,
            original_destination_connection_id=original,
            retry_source_connection_id=retry_source,
        )
        connection.begin(quic, (header.destination_cid, quic.host_cid))
        return connection

    def _ask_for_token(self, header: QuicHeader, client: Any) -> None:
        source_cid = os.urandom(CONNECTION_ID_BYTES)
        token = self._tokens.create_token(
            address=client,
            original_destination_connection_id=header.destination_cid,
            retry_source_connection_id=source_cid,
            now=self._loop.time(),
        )
        answer = encode_quic_retry(
            version=header.version or 0,
            source_cid=source_cid,
            destination_cid=header.source_cid,
            original_destination_cid=header.destination_cid,
            retry_token=token,
        )
        self.send(answer, client)


class QuicClient:
    """One connection: each query has its own stream, which also carries the answer (RFC 9250 §4.2)."""

    def __init__(self, listener: QuicListener, client: Any) -> None:
        self._listener = listener
        self._pending: dict[int, PendingQuery] = {}
        self._client = client[:2]
        self._loop = asyncio.get_running_loop()
        self._quic: QuicConnection
        self._account: Account
        self._answering: Answering
        self._streams: dict[int, tuple[bytes, float]] = {}
        """Incomplete requests by stream, with the time of their first byte; the oldest is first."""
        self._waiting: dict[int, bytes] = {}
        """Complete requests by stream, waiting until answers may be sent."""
        self._transfers: dict[int, Iterator[bytes]] = {}
        self._unsent_bytes = 0
        self._is_in_turn = False
        self._is_ending = False
        self._ids: set[bytes] = set()
        self._is_over = False
        self._queries = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, quic: QuicConnection, ids: tuple[bytes, ...]) -> None:
        """Registers these connection ids, once the connection is accepted."""
        listener, self._quic = self._listener, quic
        self._account = listener.clients.memory.account(self._client[0], self)
        partition = listener.server.table.partition("quic", 6 if is_ipv6(self._client[0]) else 4, pads=True)
        self._answering = Answering(listener.server, listener.requests, partition, self._account)
        listener.unverified.add(self)
        listener.connections[self] = None
        for connection_id in ids:
            self._issue(connection_id)

    @property
    def address(self) -> str:
        return str(self._client[0])

    def answer(self) -> None:
        """Sends a message of a zone transfer, or answers a waiting request; called in the connection's turn."""
        self._is_in_turn = False
        if self._is_over:
            return
        try:
            if self._transfers:
                self._transfer()
            elif self._waiting:
                stream = next(iter(self._waiting))
                self._take(stream, self._waiting.pop(stream))
            self._proceed()
        except Exception as failure:  # noqa: BLE001 - one client must not end the others
            log_failure(failure, b"", self._listener.server.label, with_stack=False)
            self.end(DoqError.INTERNAL_ERROR)

    def receive(self, data: bytes, client: Any) -> None:
        if self._is_over:
            return
        try:
            self._quic.receive_datagram(data, client, now=self._loop.time())
            self._proceed()
        except Exception as failure:  # noqa: BLE001 - one client must not end the others
            log_failure(failure, data, self._listener.server.label, with_stack=False)
            self._leave()

    def evict(self) -> None:
        self._listener.requests.evicted += 1
        self.end(DoqError.EXCESSIVE_LOAD)

    def resume(self) -> None:
        """Does nothing: a connection without memory is still read, and its requests are refused."""

    def end(self, code: DoqError) -> None:
        if self._is_over:
            return
        self._quic.close(error_code=code)
        self._transmit()
        self._leave()

    def _proceed(self) -> None:
        while not self._is_over and (event := self._quic.next_event()) is not None:
            self._handle(event)
        if not self._is_over:
            self._account_memory()
        if not self._is_over:
            self._transmit()
            self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        """Schedules transfers and waiting requests if answers may be sent, or ends after the last answer."""
        has_work = self._transfers or self._waiting
        if has_work and not self._is_in_turn and self._has_room:
            self._is_in_turn = True
            self._listener.clients.wait(self)
        elif self._is_ending and not (has_work or self._pending or self._unsent_bytes):
            self.end(DoqError.NO_ERROR)

    @property
    def _has_room(self) -> bool:
        return self._unsent_bytes < MAX_UNSENT_BYTES

    def _transfer(self) -> None:
        stream, messages = next(iter(self._transfers.items()))
        message = next(messages, None)
        self._send(stream, framed(message) if message else b"", is_end=message is None)
        if message is None:
            del self._transfers[stream]

    def _send(self, stream: int, data: bytes, *, is_end: bool) -> None:
        self._quic.send_stream_data(stream, data, end_stream=is_end)
        self._unsent_bytes += len(data)

    def _handle(self, event: events.QuicEvent) -> None:
        if isinstance(event, events.StreamDataReceived):
            self._add(event.stream_id, event.data, is_end=event.end_stream)
        elif isinstance(event, events.StreamReset | events.StopSendingReceived):
            self._cancel(event.stream_id)
        elif isinstance(event, events.ConnectionIdIssued):
            self._issue(event.connection_id)
        elif isinstance(event, events.ConnectionIdRetired):
            self._listener.by_id.pop(event.connection_id, None)
            self._ids.discard(event.connection_id)
        elif isinstance(event, events.HandshakeCompleted):
            self._listener.unverified.discard(self)
        elif isinstance(event, events.ConnectionTerminated):
            self._leave()

    def _add(self, stream: int, data: bytes, *, is_end: bool) -> None:
        """A stream has two bytes of length, the message, and nothing after it (RFC 9250 §4.2)."""
        if stream % CLIENT_STREAMS or stream in self._pending or stream in self._waiting:
            self.end(DoqError.PROTOCOL_ERROR)
            return
        if stream not in self._streams and not data:
            return  # the end of a stream whose query was complete before
        received, begun_s = self._streams.get(stream, (b"", self._loop.time()))
        received += data
        whole_bytes = 2 + int.from_bytes(received[:2], "big")
        if len(received) < 2 or len(received) < whole_bytes:
            self._streams[stream] = received, begun_s
            if is_end:
                self.end(DoqError.PROTOCOL_ERROR)
            elif len(self._streams) > self._listener.server.options.quic_streams:
                self.end(DoqError.EXCESSIVE_LOAD)
            return
        self._streams.pop(stream, None)
        if len(received) > whole_bytes or not _is_allowed(received[2:]):
            self.end(DoqError.PROTOCOL_ERROR)
        elif self._is_ending or not self._account.has_room:
            self._reset(stream, DoqError.EXCESSIVE_LOAD)
        else:
            self._queries += 1
            self._is_ending = self._queries >= self._listener.server.options.max_queries
            if self._has_room and not self._waiting:
                self._take(stream, received[2:])
            else:
                self._waiting[stream] = received[2:]

    def _take(self, stream: int, packet: bytes) -> None:
        listener, received_s, options = self._listener, self._loop.time(), self._listener.server.options
        if len(self._pending) >= options.quic_streams or listener.pending >= options.quic_pending:
            self._reset(stream, DoqError.EXCESSIVE_LOAD)
            return
        outcome = self._answering.answer(packet, self._client, received_s)
        if isinstance(outcome, WireResponse):
            self._respond(stream, outcome)
            listener.clients.quic_connections.touch(self)
        else:
            listener.pending += 1
            listener.clients.quic_connections.occupy(self)
            respond = partial(self._respond_later, stream)
            query = self._answering.wait(outcome, packet, self._client, received_s, respond)
            self._pending[stream] = query
            query.step()

    def _respond_later(self, stream: int, response: WireResponse) -> None:
        if not self._is_over:
            self._respond(stream, response)
            self._proceed()
        self._ended(stream)

    def _ended(self, stream: int) -> None:
        if self._pending.pop(stream, None):
            self._listener.pending -= 1
        if not (self._pending or self._is_over):
            self._listener.clients.quic_connections.touch(self)
            self._wait_for_turn()

    async def drain(self) -> None:
        await self._answering.drain(CLOSE_S)

    def _respond(self, stream: int, response: WireResponse) -> None:
        if response.wire:
            self._send(stream, framed(response.wire), is_end=response.more_messages is None)
            self._count(DoqError.NO_ERROR)
            response.sent(self._loop.time())
            if response.more_messages:
                self._transfers[stream] = response.more_messages
        elif response.request is None:
            self.end(DoqError.PROTOCOL_ERROR)
        else:
            self._reset(stream, DoqError.INTERNAL_ERROR)

    def _cancel(self, stream: int) -> None:
        self._streams.pop(stream, None)
        if self._transfers.pop(stream, None) or self._waiting.pop(stream, None):
            self._reset(stream, DoqError.REQUEST_CANCELLED)
        if query := self._pending.get(stream):
            query.cancel()
            self._ended(stream)
            self._reset(stream, DoqError.REQUEST_CANCELLED)

    def _reset(self, stream: int, code: DoqError) -> None:
        self._quic.reset_stream(stream, code)
        self._count(code)

    def _count(self, code: DoqError) -> None:
        by_code = self._listener.requests.quic_responses
        by_code[code.value] = by_code.get(code.value, 0) + 1

    def _account_memory(self) -> None:
        quic = self._quic
        streams = (*quic._crypto_streams.values(), *quic._streams.values())  # noqa: SLF001 - there is no public count of out-of-order data
        received_bytes = gaps = 0
        for stream in streams:
            received_bytes += len(stream.receiver._buffer)  # noqa: SLF001 - see above
            gaps += len(stream.receiver._ranges)  # noqa: SLF001 - see above
        received_bytes += sum(len(received) for received, _ in self._streams.values())
        received_bytes += sum(map(len, self._waiting.values()))
        self._unsent_bytes = sum(len(stream.sender._buffer) for stream in quic._streams.values())  # noqa: SLF001 - nor of unacknowledged data
        # they include answered streams until the client acknowledges, so a small `max_streams` is no bound
        most = 2 * max(self._listener.server.options.quic_streams, DEFAULTS.quic_streams)
        _, begun_s = next(iter(self._streams.values()), (b"", inf))
        is_slow = self._loop.time() > begun_s + self._listener.server.options.read_s
        if is_slow or received_bytes > MAX_HELD_BYTES or gaps > MAX_GAPS or len(quic._streams) > most:  # noqa: SLF001 - see above
            self.end(DoqError.EXCESSIVE_LOAD)
        else:
            self._account.hold(received_bytes + self._unsent_bytes)

    def _issue(self, connection_id: bytes) -> None:
        self._listener.by_id[connection_id] = self
        self._ids.add(connection_id)

    def _transmit(self) -> None:
        for data, client in self._quic.datagrams_to_send(now=self._loop.time()):
            self._listener.send(data, client)
        if self._timer:
            self._timer.cancel()
        due_s = self._quic.get_timer()
        self._timer = None if due_s is None else self._loop.call_at(due_s, self._wake, due_s)

    def _wake(self, due_s: float) -> None:
        self._timer = None
        if not self._is_over:
            self._quic.handle_timer(now=max(due_s, self._loop.time()))
            self._proceed()

    def _leave(self) -> None:
        self._is_over = True
        listener = self._listener
        listener.unverified.discard(self)
        listener.connections.pop(self, None)
        listener.clients.quic_connections.remove(self)
        self._account.close()
        for connection_id in self._ids:
            listener.by_id.pop(connection_id, None)
        if self._timer:
            self._timer.cancel()
        listener.pending -= len(self._pending)
        self._pending.clear()
        self._answering.cancel()
        self._loop.call_soon(_free, self._quic)  # a caller may still use it


def _free(quic: QuicConnection) -> None:
    """Breaks the reference cycles of a closed connection, which would keep its unacknowledged packets."""
    if quic.get_timer() is not None:
        quic.handle_timer(now=inf)  # the end of the closing period
    vars(quic).clear()  # its handlers refer to it


def _is_allowed(packet: bytes) -> bool:
    """Over QUIC the id is 0, and there is no TCP keepalive option (RFC 9250 §5.5.2)."""
    if packet[:2] != b"\x00\x00":
        return False
    if TCP_KEEPALIVE.to_bytes(2, "big") not in packet:
        return True
    query = read_query(packet)
    edns = query.edns if isinstance(query, Query) else None
    return edns is None or all(code != TCP_KEEPALIVE for code, _ in edns.options)
