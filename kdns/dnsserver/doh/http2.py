"""HTTP/2 of a DoH connection (RFC 9113): bytes in and out, without a socket."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from kdns.dns.query import MAX_MESSAGE_BYTES
from kdns.dnsserver.doh.codec import HttpError
from kdns.dnsserver.doh.exchange import HttpRequest
from kdns.dnsserver.doh.frames import MAX_FIELD_BYTES, FrameBounds
from kdns.dnsserver.doh.header_blocks import Decoder, Encoder

MAX_STREAMS: Final = 100
"""Requests of one connection that may be open."""
WINDOW_BYTES: Final = MAX_MESSAGE_BYTES + 1025
"""The bytes that a request may send before it is read: enough to see that it is too long."""
_KNOWN_SETTINGS: Final = frozenset(map(int, h2.settings.SettingCodes))


class _Connection(h2.connection.H2Connection):
    """The limit of h2, which by default remembers 65536 closed streams: 8 MB for a client that resets its requests."""

    MAX_CLOSED_STREAMS = 10 * MAX_STREAMS


@dataclass(slots=True)
class Incoming:
    """A request that is being received."""

    method: str
    target: str
    content_type: str
    body: bytearray = field(default_factory=bytearray)
    unread_bytes: int = 0


class Http2:
    """The server's side of a connection. What is received is acknowledged when its request is whole.

    So a client has at most WINDOW_BYTES of incomplete requests here.
    """

    def __init__(self) -> None:
        config = h2.config.H2Configuration(
            client_side=False,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
            normalize_inbound_headers=False,  # it joins cookies
        )
        self._h2 = _Connection(config)
        self._h2.encoder, self._h2.decoder = Encoder(), Decoder()
        self._h2.decoder.max_header_list_size = MAX_FIELD_BYTES  # h2 only announces what is in its settings
        self._frames = FrameBounds()
        codes = h2.settings.SettingCodes
        self._h2.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                codes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                codes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
                codes.MAX_HEADER_LIST_SIZE: MAX_FIELD_BYTES,
                codes.ENABLE_CONNECT_PROTOCOL: 0,
            },
        )
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(WINDOW_BYTES)
        self._incoming: dict[int, Incoming] = {}
        self._blocked: dict[int, bytes] = {}
        self._reset: list[int] = []
        self.is_over = False
        self.is_busy = False

    @property
    def has_more(self) -> bool:
        """False, because requests are independent of each other."""
        return False

    @property
    def is_incomplete(self) -> bool:
        """Whether a request is incomplete."""
        return bool(self._incoming)

    @property
    def is_blocked(self) -> bool:
        """Whether the client's flow control blocks a response."""
        return bool(self._blocked)

    @property
    def held_bytes(self) -> int:
        """Bytes of incomplete frames and requests, and of responses that flow control blocks."""
        requests_bytes = sum(len(each.body) + len(each.target) for each in self._incoming.values())
        return self._frames.held_bytes + requests_bytes + sum(map(len, self._blocked.values()))

    def receive(self, data: bytes) -> list[HttpRequest]:
        """Returns the requests that are complete now; HttpError for invalid bytes."""
        requests: list[HttpRequest] = []
        try:
            self._frames.receive(data)
        except HttpError:
            self._h2.close_connection(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
            raise
        try:
            for event in self._h2.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    self._begin(event)
                elif isinstance(event, h2.events.DataReceived):
                    requests += self._add(event)
                elif isinstance(event, h2.events.StreamEnded):
                    requests += self._end(event.stream_id or 0)
                elif isinstance(event, h2.events.StreamReset):
                    self._give_up(event.stream_id or 0)
                elif isinstance(event, h2.events.RemoteSettingsChanged):
                    for code in event.changed_settings.keys() - _KNOWN_SETTINGS:
                        del self._h2.remote_settings[code]  # it has no effect, but h2 would keep each of 65536
                    self._unblock()
                elif isinstance(event, h2.events.WindowUpdated):
                    self._unblock()
                elif isinstance(event, h2.events.ConnectionTerminated):
                    self.is_over = True
        except h2.exceptions.ProtocolError as error:
            raise HttpError(str(error)) from error
        return requests

    def respond(self, stream: int, status: HTTPStatus, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Answers a request, unless the client cancelled it."""
        fields = [(":status", str(status.value)), ("content-length", str(len(body))), *headers]
        try:
            self._h2.send_headers(stream, fields)
            self._send(stream, body)
        except h2.exceptions.ProtocolError:  # its stream is closed, or the connection is
            self._blocked.pop(stream, None)

    def take_reset(self) -> list[int]:
        """Returns the streams of requests that the client has cancelled since the last call."""
        reset, self._reset = self._reset, []
        return reset

    def to_send(self) -> bytes:
        """Returns the bytes to send now."""
        return self._h2.data_to_send()

    def close(self) -> None:
        """Announces that no further request is answered (GOAWAY)."""
        if not self.is_over:
            self._h2.close_connection()
            self.is_over = True

    def _begin(self, event: h2.events.RequestReceived) -> None:
        fields = {bytes(name): bytes(value).decode("latin-1") for name, value in event.headers or ()}
        self._incoming[event.stream_id or 0] = Incoming(
            fields.get(b":method", ""), fields.get(b":path", ""), fields.get(b"content-type", "")
        )

    def _add(self, event: h2.events.DataReceived) -> list[HttpRequest]:
        stream, size_bytes = event.stream_id or 0, event.flow_controlled_length or 0
        incoming = self._incoming.get(stream)
        if incoming is None:  # it was refused before its end
            self._read(stream, size_bytes)
            return []
        incoming.body += event.data or b""
        incoming.unread_bytes += size_bytes
        if len(incoming.body) <= MAX_MESSAGE_BYTES:
            return []
        del self._incoming[stream]
        self._read(stream, incoming.unread_bytes)
        return [HttpRequest(stream, incoming.method, incoming.target, incoming.content_type, is_cut=True)]

    def _end(self, stream: int) -> list[HttpRequest]:
        incoming = self._incoming.pop(stream, None)
        if incoming is None:
            return []
        self._read(stream, incoming.unread_bytes)
        return [HttpRequest(stream, incoming.method, incoming.target, incoming.content_type, bytes(incoming.body))]

    def _give_up(self, stream: int) -> None:
        incoming = self._incoming.pop(stream, None)
        if incoming:
            self._read(stream, incoming.unread_bytes)
        self._blocked.pop(stream, None)
        self._reset.append(stream)

    def _read(self, stream: int, size_bytes: int) -> None:
        """Opens the flow-control window by as much again."""
        if size_bytes:
            self._h2.acknowledge_received_data(size_bytes, stream)

    def _send(self, stream: int, body: bytes) -> None:
        """Sends as much of a response as the flow-control window allows; further bytes wait."""
        while True:
            room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
            if body and room <= 0:
                self._blocked[stream] = body
                return
            piece, body = body[:room], body[room:]
            self._h2.send_data(stream, piece, end_stream=not body)
            if not body:
                self._blocked.pop(stream, None)
                return

    def _unblock(self) -> None:
        for stream, body in tuple(self._blocked.items()):
            try:
                self._send(stream, body)
            except h2.exceptions.ProtocolError:
                self._blocked.pop(stream, None)
