"""Frames of HTTP/2 (RFC 9113 §4 and §6): their head, types, flags, sizes and error codes."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

from kdns.dnsserver.doh.codec import HttpError

MAX_FRAME_BYTES: Final = 16 * 1024
"""The longest payload in both directions; every peer accepts it (RFC 9113 §6.5.2)."""
MAX_WINDOW_BYTES: Final = (1 << 31) - 1
MAX_STREAM: Final = (1 << 31) - 1

HEAD: Final = Struct("!IBI")
"""Of a frame: its payload's length in the upper 24 bits and its type, the flags, and the stream."""

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20

FIXED_BYTES: Final = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
"""The payloads that have one length."""


class ErrorCode(IntEnum):
    """Why a stream or connection ends (RFC 9113 §7)."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    FLOW_CONTROL_ERROR = 0x3
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    COMPRESSION_ERROR = 0x9
    ENHANCE_YOUR_CALM = 0xB


class Http2Error(HttpError):
    """A client's error that ends its connection (RFC 9113 §5.4.1)."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class StreamError(Exception):
    """A client's error that ends one stream (RFC 9113 §5.4.2)."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Returns the bytes of a frame."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def unpadded(flags: int, payload: bytes) -> bytes:
    """Returns the payload without its padding; Http2Error if the padding is as long as the payload (§6.1)."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]
