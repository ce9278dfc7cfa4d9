"""HTTP/2 of a DoH connection (RFC 9113) by h2: bytes in and out, without a socket.

h2 gets whole frames only. Incomplete frames and field blocks are counted here, and refused at their first bytes if they
are too large: h2 would buffer up to 16 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import hpack
from h2.errors import ErrorCodes

from kdns.dns.query import MAX_MESSAGE_BYTES
from kdns.dnsserver.doh.exchange import HttpError, HttpRequest

MAX_STREAMS: Final = 100
"""The most open requests of one connection."""
MAX_FRAME_BYTES: Final = 16 * 1024
"""The longest payload in both directions; every peer accepts it (RFC 9113 §6.5.2)."""
MAX_FIELD_BYTES: Final = 16 * 1024
"""The limit of all fields of a request, both encoded and as RFC 9113 §6.5.2 counts them.

They are decoded at once, which takes a few milliseconds at the limit.
"""
MAX_SETTINGS: Final = 64
"""The most settings in one frame; fewer than ten exist."""
WINDOW_BYTES: Final = MAX_MESSAGE_BYTES + 1025
"""Flow-control window of a request: just enough to notice that it is too long."""
FRAME_COST_BYTES: Final = 512
"""Memory of a frame in an incomplete field block, beside its payload."""
STREAM_COST_BYTES: Final = 2560
"""Memory of an open stream in h2."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD_BYTES: Final = 9
_SETTING_BYTES: Final = 6
_HEADERS: Final = 1
_SETTINGS: Final = 4
_GOAWAY: Final = 7
_CONTINUATION: Final = 9
_WITH_FIELDS: Final = frozenset({_HEADERS, _CONTINUATION})
_END_HEADERS: Final = 4
_TABLE_UPDATES: Final = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*+[\0-\x7f]){3}")
_KNOWN_SETTINGS: Final = frozenset(map(int, h2.settings.SettingCodes))


class _RefusedError(h2.exceptions.ProtocolError):
    """A frame that is not passed to h2."""

    def __init__(self, code: ErrorCodes, reason: str) -> None:
        super().__init__(reason)
        self.error_code = code


class _Connection(h2.connection.H2Connection):
    """h2 remembers 65536 closed streams by default: 8 MB for a client that resets its requests."""

    MAX_CLOSED_STREAMS = MAX_STREAMS


class _Encoder(hpack.Encoder):
    """Its dynamic table only shrinks, to the smallest size that the client has set.

    hpack would queue every change, and not announce a repeated one (RFC 7541 §4.2).
    """

    @property
    def header_table_size(self) -> int:
        return self.header_table.maxsize

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        if value < self.header_table.maxsize:
            self.header_table.maxsize = value
            self.table_size_changes = [value]


class _Decoder(hpack.Decoder):
    """Caches the last field block: a client that sends POST requests repeats it."""

    def __init__(self) -> None:
        super().__init__(MAX_FIELD_BYTES)
        self._block = b""
        self._fields: list[hpack.HeaderTuple] = []

    def decode(self, data: bytes, raw: bool = False) -> list[hpack.HeaderTuple]:
        """Refuses more than two updates of the table's size (RFC 7541 §4.2), which cost 1 µs each."""
        if data and data == self._block:
            return self._fields
        if _TABLE_UPDATES.match(data):
            raise hpack.HPACKDecodingError("three updates of the dynamic table's size")
        size, entries = self.header_table_size, tuple(self.header_table.dynamic_entries)
        fields = list(super().decode(data, raw))
        is_unchanged = size == self.header_table_size and entries == tuple(self.header_table.dynamic_entries)
        self._block, self._fields = (bytes(data), fields) if is_unchanged else (b"", [])
        return fields


class Http2:
    """The server side of a connection: received bytes → requests, responses → bytes.

    The client's flow control blocks `blocked_bytes` of responses. The client's own window is opened again when its
    request is answered, so unanswered bodies of a connection have at most 65535 + WINDOW_BYTES.
    """

    is_busy: Final = False
    has_more: Final = False

    def __init__(self) -> None:
        config = h2.config.H2Configuration(
            client_side=False,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
            normalize_inbound_headers=False,  # it joins cookies
        )
        self._h2 = _Connection(config)
        self._h2.encoder, self._h2.decoder = _Encoder(), _Decoder()
        codes = h2.settings.SettingCodes
        self._h2.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                codes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                codes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
                codes.MAX_HEADER_LIST_SIZE: MAX_FIELD_BYTES,
            },
        )
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(WINDOW_BYTES)
        self.is_over = False
        self.blocked_bytes = 0
        self._has_preface = False
        self._received = b""
        self._block_bytes = 0
        self._block_frames = 0
        self._incoming: dict[int, HttpRequest] = {}
        self._unread: dict[int, int] = {}
        """Bytes to open a stream's window by when its request is answered."""
        self._blocked: dict[int, bytes] = {}
        self._reset: list[int] = []
        self._is_closed = False

    @property
    def is_incomplete(self) -> bool:
        return bool(self._incoming)

    @property
    def held_bytes(self) -> int:
        """Bytes of incomplete requests, and of responses that flow control blocks."""
        held_bytes = len(self._received) + self._block_bytes + self._block_frames * FRAME_COST_BYTES
        if self._incoming:
            held_bytes += sum(
                len(request.body) + len(request.target) + STREAM_COST_BYTES for request in self._incoming.values()
            )
        return held_bytes + self.blocked_bytes + len(self._blocked) * STREAM_COST_BYTES

    def receive(self, data: bytes) -> list[HttpRequest]:
        """The requests that are complete now; HttpError for invalid bytes."""
        if self._is_closed:
            return []
        requests: list[HttpRequest] = []
        has_room = False
        try:
            for event in self._h2.receive_data(self._whole_frames(self._received + data)):
                has_room |= self._handle(event, requests)
        except h2.exceptions.ProtocolError as error:
            if isinstance(error, _RefusedError):
                self._h2.close_connection(error.error_code)
            self._end()
            raise HttpError(str(error)) from error
        if has_room:  # once for all frames: each may open the windows by a byte
            for stream, body in tuple(self._blocked.items()):
                self._send(stream, body)
        return requests

    def respond(self, stream: int, status: HTTPStatus, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        self._open_window(stream)
        fields = [(":status", str(int(status))), ("content-length", str(len(body))), *headers]
        try:
            self._h2.send_headers(stream, fields)
        except h2.exceptions.ProtocolError:  # the stream or the connection is closed
            return
        self._send(stream, body)

    def take_reset(self) -> list[int]:
        """Streams that the client has reset since the last call."""
        reset, self._reset = self._reset, []
        return reset

    def to_send(self) -> bytes:
        return self._h2.data_to_send()

    def close(self) -> None:
        """Sends GOAWAY: no further request is answered."""
        if not self._is_closed:
            self._h2.close_connection()
            self._end()

    def _whole_frames(self, received: bytes) -> bytes:
        """The frames that h2 gets; buffers an incomplete one."""
        position, frames = 0, []
        if not self._has_preface:
            if not _PREFACE.startswith(received[: len(_PREFACE)]):
                raise _RefusedError(ErrorCodes.PROTOCOL_ERROR, "no preface of HTTP/2")
            self._has_preface = len(received) >= len(_PREFACE)
            if self._has_preface:
                position = len(_PREFACE)
                frames.append(_PREFACE)
        while self._has_preface and len(received) - position >= _HEAD_BYTES:
            size_bytes = int.from_bytes(received[position : position + 3])
            kind, flags = received[position + 3 : position + 5]
            self._check(kind, size_bytes)
            end = position + _HEAD_BYTES + size_bytes
            if end > len(received):
                break
            if kind in _WITH_FIELDS:
                is_end = bool(flags & _END_HEADERS)
                self._block_bytes = 0 if is_end else self._block_bytes + size_bytes
                self._block_frames = 0 if is_end else self._block_frames + 1
            if kind == _GOAWAY:
                self.is_over = True  # h2 would send nothing after it, but pending responses are (RFC 9113 §6.8)
            else:
                frames.append(received[position:end])
            position = end
        self._received = received[position:]
        return b"".join(frames)

    def _check(self, kind: int, size_bytes: int) -> None:
        if size_bytes > MAX_FRAME_BYTES:
            raise _RefusedError(ErrorCodes.FRAME_SIZE_ERROR, f"a frame of {size_bytes} bytes")
        if kind == _SETTINGS and size_bytes > MAX_SETTINGS * _SETTING_BYTES:
            raise _RefusedError(ErrorCodes.ENHANCE_YOUR_CALM, "too many settings")
        if kind in _WITH_FIELDS and self._block_bytes + size_bytes > MAX_FIELD_BYTES:
            raise _RefusedError(ErrorCodes.ENHANCE_YOUR_CALM, "too many fields")

    def _handle(self, event: h2.events.Event, requests: list[HttpRequest]) -> bool:
        """Adds the request that an event completes. Returns whether a window may have been opened."""
        match event:
            case h2.events.RequestReceived(stream_id=stream, headers=headers):
                fields = {bytes(name): bytes(value).decode("latin-1") for name, value in headers or ()}
                self._incoming[stream] = HttpRequest(
                    stream, fields.get(b":method", ""), fields.get(b":path", ""), fields.get(b"content-type", "")
                )
            case h2.events.DataReceived(stream_id=stream, data=data, flow_controlled_length=size_bytes):
                self._add(stream, data, size_bytes, requests)
            case h2.events.StreamEnded(stream_id=stream):
                request = self._incoming.pop(stream)
                if not request.is_cut:
                    requests.append(request)
            case h2.events.StreamReset(stream_id=stream):
                self._incoming.pop(stream, None)
                self._open_window(stream)
                self._unblock(stream)
                self._reset.append(stream)
                requests[:] = [request for request in requests if request.stream != stream]
            case h2.events.RemoteSettingsChanged(changed_settings=changed):
                for code in changed.keys() - _KNOWN_SETTINGS:
                    del self._h2.remote_settings[code]  # h2 would store up to 65536
                return True
            case h2.events.WindowUpdated():
                return True
        return False

    def _add(self, stream: int, data: bytes, size_bytes: int, requests: list[HttpRequest]) -> None:
        request = self._incoming[stream]
        self._unread[stream] = self._unread.get(stream, 0) + size_bytes
        if not request.is_cut:
            request.body += data
            if len(request.body) > MAX_MESSAGE_BYTES:
                request.is_cut = True
                request.body = b""
                requests.append(request)
        if request.is_cut:
            self._open_window(stream)

    def _open_window(self, stream: int) -> None:
        if size_bytes := self._unread.pop(stream, 0):
            self._h2.acknowledge_received_data(size_bytes, stream)

    def _send(self, stream: int, body: bytes) -> None:
        """Sends as much of a response as the windows allow; the remaining bytes wait."""
        self._unblock(stream)
        while True:
            room_bytes = min(self._h2.local_flow_control_window(stream), MAX_FRAME_BYTES)
            if body and room_bytes <= 0:
                self._blocked[stream] = body
                self.blocked_bytes += len(body)
                return
            piece, body = body[:room_bytes], body[room_bytes:]
            self._h2.send_data(stream, piece, end_stream=not body)
            if not body:
                return

    def _unblock(self, stream: int) -> None:
        self.blocked_bytes -= len(self._blocked.pop(stream, b""))

    def _end(self) -> None:
        self.is_over = self._is_closed = True
        self._received = b""
        self._block_bytes = self._block_frames = self.blocked_bytes = 0
        for streams in (self._incoming, self._unread, self._blocked):
            streams.clear()
