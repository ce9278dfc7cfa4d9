"""Frames of HTTP/2 as bytes, valid or not (RFC 9113 §4.1 and §6)."""

from collections.abc import Iterator

import hpack

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, _, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HEAD_BYTES = 9


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"")
POST = ((":method", "POST"), (":scheme", "https"), (":authority", "x"), (":path", "/dns-query"))


def block(*fields: tuple[str, str]) -> bytes:
    """Fields that are not added to the dynamic table, so that their bytes have one meaning."""
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(name, value) for name, value in fields])


def headers(*fields: tuple[str, str], stream: int = 1, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, block(*fields))


def setting(code: int, value: int) -> bytes:
    return frame(SETTINGS, 0, 0, code.to_bytes(2) + value.to_bytes(4))


def window(stream: int, size_bytes: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, size_bytes.to_bytes(4))


def frames_of(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """The type, flags, stream and payload of each frame."""
    while data:
        end = HEAD_BYTES + int.from_bytes(data[:3])
        yield data[3], data[4], int.from_bytes(data[5:HEAD_BYTES]), data[HEAD_BYTES:end]
        data = data[end:]
