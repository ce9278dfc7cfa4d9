"""HTTP/2 of a DoH connection (RFC 9113), the server's side: bytes in and out, without a socket.

A general implementation takes ten times as long for each request. This one has what a server without push, upgrades
and priorities needs, so a stream has few states: its request is being received, its response is not sent, or both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from struct import Struct
from typing import Final, NamedTuple

from kdns.dns.query import MAX_MESSAGE_BYTES
from kdns.dnsserver.doh.exchange import HttpRequest
from kdns.dnsserver.doh.fields import RequestHead, are_trailers, request_head
from kdns.dnsserver.doh.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FIXED_BYTES,
    GOAWAY,
    HAS_PRIORITY,
    HEAD,
    HEADERS,
    MAX_FRAME_BYTES,
    MAX_STREAM,
    MAX_WINDOW_BYTES,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    Http2Error,
    StreamError,
    frame,
    unpadded,
)
from kdns.dnsserver.doh.header_blocks import Decoder, Encoder

MAX_STREAMS: Final = 100
"""Requests of one connection that may be open."""
MAX_FIELD_BYTES: Final = 16 * 1024
"""All fields of a request, encoded or as RFC 9113 §6.5.2 counts them.

They are decoded in one go, which takes a few milliseconds for as many.
"""
MAX_CONTINUATIONS: Final = 64
"""Frames CONTINUATION of one field block."""
MAX_SETTINGS: Final = 64
"""Settings in one frame; there are fewer than ten."""
DEFAULT_WINDOW_BYTES: Final = 65535
STREAM_WINDOW_BYTES: Final = MAX_MESSAGE_BYTES + 1025
"""The bytes that a request may send before it is read: enough to see that it is too long."""
CONNECTION_WINDOW_BYTES: Final = DEFAULT_WINDOW_BYTES + STREAM_WINDOW_BYTES
UPDATE_BYTES: Final = CONNECTION_WINDOW_BYTES // 4
"""So many bytes are read before the client's window is opened again."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTING: Final = Struct("!HI")
_NUMBER: Final = Struct("!I")
_GOAWAY: Final = Struct("!II")

_HEADER_TABLE_SIZE: Final = 1
_ENABLE_PUSH: Final = 2
_MAX_CONCURRENT_STREAMS: Final = 3
_INITIAL_WINDOW_SIZE: Final = 4
_MAX_FRAME_SIZE: Final = 5
_MAX_HEADER_LIST_SIZE: Final = 6

_SERVER_SETTINGS: Final = (
    (_MAX_CONCURRENT_STREAMS, MAX_STREAMS),
    (_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES),
    (_MAX_HEADER_LIST_SIZE, MAX_FIELD_BYTES),
)
_SETTING_RANGES: Final = {
    _ENABLE_PUSH: (range(2), ErrorCode.PROTOCOL_ERROR),
    _INITIAL_WINDOW_SIZE: (range(MAX_WINDOW_BYTES + 1), ErrorCode.FLOW_CONTROL_ERROR),
    _MAX_FRAME_SIZE: (range(MAX_FRAME_BYTES, 1 << 24), ErrorCode.PROTOCOL_ERROR),
}
"""The valid values of settings, and the error for others (RFC 9113 §6.5.2)."""


@dataclass(slots=True)
class Stream:
    """A request that is being received or waits for its response.

    `room_bytes` is how much more than the initial window the client allows, less what was sent. `is_cut`: the body is
    longer than allowed, and its end is dropped.
    """

    head: RequestHead
    body: bytearray = field(default_factory=bytearray)
    unread_bytes: int = 0
    room_bytes: int = 0
    is_cut: bool = False


class FieldBlock(NamedTuple):
    """The frames of an incomplete field block."""

    stream: int
    flags: int
    fragments: tuple[bytes, ...]

    @property
    def size_bytes(self) -> int:
        """The length of all fragments."""
        return sum(map(len, self.fragments))


class Http2:
    """One connection. The client's window is opened again when a request is complete.

    So a client has at most CONNECTION_WINDOW_BYTES of incomplete requests here.
    """

    def __init__(self) -> None:
        self._decoder = Decoder(request_head, MAX_FIELD_BYTES)
        self._encoder = Encoder()
        self._received = b""
        self._has_preface = self._has_settings = False
        self._block: FieldBlock | None = None
        self._last_stream = 0
        self._receiving: dict[int, Stream] = {}
        self._unanswered: dict[int, Stream] = {}
        self._blocked: dict[int, bytes] = {}
        self._requests: list[HttpRequest] = []
        self._reset: list[int] = []
        self._receive_window_bytes = CONNECTION_WINDOW_BYTES
        self._read_bytes = 0
        self._send_window_bytes = self._initial_window_bytes = DEFAULT_WINDOW_BYTES
        self.is_over = False
        self.is_busy = False
        settings = b"".join(_SETTING.pack(*setting) for setting in _SERVER_SETTINGS)
        self._unsent = [frame(SETTINGS, 0, 0, settings)]
        self._update_window(0, STREAM_WINDOW_BYTES)

    @property
    def has_more(self) -> bool:
        """False, because requests are independent of each other."""
        return False

    @property
    def is_incomplete(self) -> bool:
        """Whether a request is incomplete."""
        return bool(self._receiving)

    @property
    def is_blocked(self) -> bool:
        """Whether the client's flow control blocks a response."""
        return bool(self._blocked)

    @property
    def held_bytes(self) -> int:
        """Bytes of incomplete frames and requests, and of responses that flow control blocks."""
        held_bytes = len(self._received)
        if self._block:
            held_bytes += self._block.size_bytes
        if self._receiving:
            held_bytes += sum(len(each.body) + len(each.head.target) for each in self._receiving.values())
        if self._blocked:
            held_bytes += sum(map(len, self._blocked.values()))
        return held_bytes

    def receive(self, data: bytes) -> list[HttpRequest]:
        """Returns the requests that are complete now; Http2Error for invalid bytes."""
        if self.is_over:
            return []
        received = self._received + data
        try:
            position = self._receive_frames(received)
        except Http2Error as error:
            self._go_away(error.code)
            raise
        self._received = received[position:]
        requests, self._requests = self._requests, []
        return requests

    def respond(self, stream: int, status: HTTPStatus, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Answers a request, unless the client cancelled it."""
        if stream in self._unanswered:
            fields = ((":status", str(int(status))), ("content-length", str(len(body))), *headers)
            self._unsent.append(frame(HEADERS, END_HEADERS, stream, self._encoder.encode(fields)))
            self._send(stream, body)

    def take_reset(self) -> list[int]:
        """Returns the streams of requests that were cancelled since the last call."""
        reset, self._reset = self._reset, []
        return reset

    def to_send(self) -> bytes:
        """Returns the bytes to send now."""
        data = b"".join(self._unsent)
        self._unsent.clear()
        return data

    def close(self) -> None:
        """Announces that no further request is answered (GOAWAY)."""
        if not self.is_over:
            self._go_away(ErrorCode.NO_ERROR)

    def _go_away(self, code: ErrorCode) -> None:
        self._unsent.append(frame(GOAWAY, 0, 0, _GOAWAY.pack(self._last_stream, code)))
        self.is_over = True
        self._received = b""
        self._block = None
        for streams in (self._receiving, self._unanswered, self._blocked):
            streams.clear()

    def _receive_frames(self, received: bytes) -> int:
        """Receives all complete frames. Returns the position of the incomplete one."""
        position = 0
        if not self._has_preface:
            if not _PREFACE.startswith(received[: len(_PREFACE)]):
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "no preface of HTTP/2")
            if len(received) < len(_PREFACE):
                return 0
            self._has_preface = True
            position = len(_PREFACE)
        while (payload_at := position + HEAD.size) <= len(received):
            size_and_kind, flags, stream = HEAD.unpack_from(received, position)
            size_bytes, kind, stream = size_and_kind >> 8, size_and_kind & 0xFF, stream & MAX_STREAM
            self._check(kind, stream, size_bytes)
            end = payload_at + size_bytes
            if end > len(received):
                break
            position = end
            receive = _RECEIVERS.get(kind)
            if receive:
                try:
                    receive(self, flags, stream, received[payload_at:end])
                except StreamError as error:
                    self._cancel(stream)
                    self._unsent.append(frame(RST_STREAM, 0, stream, _NUMBER.pack(error.code)))
        return position

    def _check(self, kind: int, stream: int, size_bytes: int) -> None:
        """Raises Http2Error for a frame that is too large, or has no place here."""
        if size_bytes > MAX_FRAME_BYTES or size_bytes != FIXED_BYTES.get(kind, size_bytes):
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a frame of type {kind} with {size_bytes} bytes")
        if self._block is None:
            is_expected = kind != CONTINUATION and self._is_expected(kind, stream)
        else:
            is_expected = kind == CONTINUATION and stream == self._block.stream
        if not is_expected:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a frame of type {kind} on stream {stream} is not expected")
        if kind == SETTINGS and size_bytes > MAX_SETTINGS * _SETTING.size:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "too many settings")
        if kind in _WITH_FIELDS:
            block_bytes = self._block.size_bytes if self._block else 0
            if block_bytes + size_bytes > MAX_FIELD_BYTES:
                raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "too many fields")

    def _is_expected(self, kind: int, stream: int) -> bool:
        """Returns whether a frame of this type is valid in the state of its stream (RFC 9113 §5.1)."""
        if not self._has_settings:
            return kind == SETTINGS and stream == 0
        is_begun = stream % 2 == 1 and stream <= self._last_stream
        if kind == HEADERS:
            return stream % 2 == 1
        if kind in _OF_REQUESTS:
            return is_begun
        if kind == WINDOW_UPDATE:
            return is_begun or stream == 0
        if kind == PRIORITY:
            return stream != 0
        return stream == 0 or kind not in _OF_CONNECTIONS

    def _receive_headers(self, flags: int, stream: int, payload: bytes) -> None:
        block = unpadded(flags, payload)
        if flags & HAS_PRIORITY:
            if len(block) < FIXED_BYTES[PRIORITY]:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a frame HEADERS without its priority")
            block = block[FIXED_BYTES[PRIORITY] :]
        if flags & END_HEADERS:
            self._receive_block(flags, stream, block)
        else:
            self._block = FieldBlock(stream, flags, (block,))

    def _receive_continuation(self, flags: int, stream: int, payload: bytes) -> None:
        assert self._block  # noqa: S101 - _check raises otherwise
        block = self._block._replace(fragments=(*self._block.fragments, payload))
        if len(block.fragments) > MAX_CONTINUATIONS:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "too many frames of one field block")
        self._block = block
        if flags & END_HEADERS:
            self._block = None
            self._receive_block(block.flags, stream, b"".join(block.fragments))

    def _receive_block(self, flags: int, stream: int, block: bytes) -> None:
        """Begins a request, or ends one with trailers."""
        if stream <= self._last_stream:
            self._receive_trailers(flags, stream, block)
            return
        head = self._decoder.value(block)
        self._last_stream = stream
        if len(self._receiving) + len(self._unanswered) >= MAX_STREAMS:
            raise StreamError(ErrorCode.REFUSED_STREAM)
        if head is None:
            raise StreamError(ErrorCode.PROTOCOL_ERROR)
        self._receiving[stream] = Stream(head)
        if flags & END_STREAM:
            self._end(stream)

    def _receive_trailers(self, flags: int, stream: int, block: bytes) -> None:
        trailers = self._decoder.fields(block)
        if stream not in self._receiving:
            raise StreamError(ErrorCode.STREAM_CLOSED)
        if not flags & END_STREAM or not are_trailers(trailers):
            raise StreamError(ErrorCode.PROTOCOL_ERROR)
        self._end(stream)

    def _receive_data(self, flags: int, stream: int, payload: bytes) -> None:
        self._receive_window_bytes -= len(payload)
        if self._receive_window_bytes < 0:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "more bytes than the connection's window")
        body = unpadded(flags, payload)
        receiving = self._receiving.get(stream)
        if receiving is None:
            self._read(len(payload))
            raise StreamError(ErrorCode.STREAM_CLOSED)
        receiving.unread_bytes += len(payload)
        if receiving.unread_bytes > STREAM_WINDOW_BYTES:
            raise StreamError(ErrorCode.FLOW_CONTROL_ERROR)
        if not receiving.is_cut:
            receiving.body += body
            if len(receiving.body) > MAX_MESSAGE_BYTES:
                self._cut(stream, receiving)
        if flags & END_STREAM:
            self._end(stream)
        elif receiving.is_cut:
            self._update_window(stream, receiving.unread_bytes)
            self._read(receiving.unread_bytes)
            receiving.unread_bytes = 0

    def _cut(self, stream: int, receiving: Stream) -> None:
        """Has a request answered before its end, which is dropped."""
        receiving.is_cut = True
        receiving.body.clear()
        self._complete(stream, receiving)

    def _end(self, stream: int) -> None:
        """Has a request answered that the client has sent completely."""
        received = self._receiving.pop(stream)
        self._read(received.unread_bytes)
        if not received.is_cut:
            if received.head.length not in {None, len(received.body)}:
                raise StreamError(ErrorCode.PROTOCOL_ERROR)
            self._complete(stream, received)

    def _complete(self, stream: int, received: Stream) -> None:
        self._unanswered[stream] = received
        head = received.head
        self._requests.append(
            HttpRequest(stream, head.method, head.target, head.content_type, bytes(received.body), received.is_cut)
        )

    def _receive_reset(self, flags: int, stream: int, payload: bytes) -> None:
        del flags, payload
        self._cancel(stream)

    def _cancel(self, stream: int) -> None:
        """Forgets a stream, and its request if that is not answered yet."""
        receiving = self._receiving.pop(stream, None)
        if receiving:
            self._read(receiving.unread_bytes)
        self._blocked.pop(stream, None)
        if self._unanswered.pop(stream, None):
            self._reset.append(stream)
            self._requests = [request for request in self._requests if request.stream != stream]

    def _receive_settings(self, flags: int, stream: int, payload: bytes) -> None:
        del stream
        if len(payload) % _SETTING.size or (flags & ACK and payload):
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"settings of {len(payload)} bytes")
        if flags & ACK:
            return
        self._has_settings = True
        initial_window_bytes = self._initial_window_bytes
        for code, value in _SETTING.iter_unpack(payload):
            values, error = _SETTING_RANGES.get(code, (None, ErrorCode.NO_ERROR))
            if values is not None and value not in values:
                raise Http2Error(error, f"setting {code} is {value}")
            if code == _HEADER_TABLE_SIZE:
                self._encoder.header_table_size = value
            elif code == _INITIAL_WINDOW_SIZE:
                self._initial_window_bytes = value
        self._unsent.append(frame(SETTINGS, ACK, 0, b""))
        if self._initial_window_bytes <= initial_window_bytes:
            return
        rooms_bytes = (each.room_bytes for each in (*self._receiving.values(), *self._unanswered.values()))
        if self._initial_window_bytes + max(rooms_bytes, default=0) > MAX_WINDOW_BYTES:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is too large")
        self._unblock(tuple(self._blocked))

    def _receive_ping(self, flags: int, stream: int, payload: bytes) -> None:
        del stream
        if not flags & ACK:
            self._unsent.append(frame(PING, ACK, 0, payload))

    def _receive_goaway(self, flags: int, stream: int, payload: bytes) -> None:
        del flags, stream
        if len(payload) < _GOAWAY.size:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a frame GOAWAY of {len(payload)} bytes")
        self.is_over = True

    def _receive_window_update(self, flags: int, stream: int, payload: bytes) -> None:
        del flags
        size_bytes = _NUMBER.unpack(payload)[0] & MAX_WINDOW_BYTES
        if stream:
            self._open_stream(stream, size_bytes)
            return
        was_open = self._send_window_bytes > 0
        self._send_window_bytes += size_bytes
        if not size_bytes:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a window is opened by 0 bytes")
        if self._send_window_bytes > MAX_WINDOW_BYTES:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is too large")
        if not was_open:
            self._unblock(tuple(self._blocked))

    def _open_stream(self, stream: int, size_bytes: int) -> None:
        opened = self._unanswered.get(stream) or self._receiving.get(stream)
        if opened is None:
            return
        opened.room_bytes += size_bytes
        if not size_bytes:
            raise StreamError(ErrorCode.PROTOCOL_ERROR)
        if self._initial_window_bytes + opened.room_bytes > MAX_WINDOW_BYTES:
            raise StreamError(ErrorCode.FLOW_CONTROL_ERROR)
        self._unblock((stream,))

    def _receive_push_promise(self, flags: int, stream: int, payload: bytes) -> None:
        del flags, stream, payload
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "clients do not push")

    def _read(self, size_bytes: int) -> None:
        """Opens the connection's window by as much again, in large steps."""
        self._read_bytes += size_bytes
        if self._read_bytes >= UPDATE_BYTES:
            self._update_window(0, self._read_bytes)
            self._receive_window_bytes += self._read_bytes
            self._read_bytes = 0

    def _update_window(self, stream: int, size_bytes: int) -> None:
        if size_bytes:
            self._unsent.append(frame(WINDOW_UPDATE, 0, stream, _NUMBER.pack(size_bytes)))

    def _send(self, stream: int, body: bytes) -> None:
        """Sends as much of a response as the flow-control windows allow; further bytes wait."""
        answered = self._unanswered[stream]
        while True:
            window_bytes = min(self._send_window_bytes, self._initial_window_bytes + answered.room_bytes)
            piece = body[: max(0, min(window_bytes, MAX_FRAME_BYTES))]
            body = body[len(piece) :]
            if body and not piece:
                self._blocked[stream] = body
                return
            self._unsent.append(frame(DATA, 0 if body else END_STREAM, stream, piece))
            self._send_window_bytes -= len(piece)
            answered.room_bytes -= len(piece)
            if not body:
                del self._unanswered[stream]
                self._blocked.pop(stream, None)
                return

    def _unblock(self, streams: Iterable[int]) -> None:
        """Sends on blocked streams, until the connection's window is closed."""
        for stream in streams:
            if self._send_window_bytes <= 0:
                return
            if stream in self._blocked:
                self._send(stream, self._blocked[stream])


_RECEIVERS: Final[dict[int, Callable[[Http2, int, int, bytes], None]]] = {
    DATA: Http2._receive_data,  # noqa: SLF001 - the table of this class
    HEADERS: Http2._receive_headers,  # noqa: SLF001 - see above
    RST_STREAM: Http2._receive_reset,  # noqa: SLF001 - see above
    SETTINGS: Http2._receive_settings,  # noqa: SLF001 - see above
    PUSH_PROMISE: Http2._receive_push_promise,  # noqa: SLF001 - see above
    PING: Http2._receive_ping,  # noqa: SLF001 - see above
    GOAWAY: Http2._receive_goaway,  # noqa: SLF001 - see above
    WINDOW_UPDATE: Http2._receive_window_update,  # noqa: SLF001 - see above
    CONTINUATION: Http2._receive_continuation,  # noqa: SLF001 - see above
}
"""What is done with a frame of each type; others and PRIORITY are ignored."""
_WITH_FIELDS: Final = frozenset({HEADERS, CONTINUATION})
_OF_REQUESTS: Final = frozenset({DATA, RST_STREAM})
_OF_CONNECTIONS: Final = frozenset({SETTINGS, PING, GOAWAY})
