"""What a connection of HTTP may hold, and have taken apart in one go."""

from __future__ import annotations

import h2.connection
import hpack
import pytest

from kdns.dnsserver.doh.codec import HttpError
from kdns.dnsserver.doh.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADERS,
    MAX_FRAME_BYTES,
    PADDED,
    SETTINGS,
    frame,
)
from kdns.dnsserver.doh.http1 import HEAD_BYTES, Http1
from kdns.dnsserver.doh.http2 import MAX_CONTINUATIONS, MAX_FIELD_BYTES, MAX_SETTINGS, MAX_STREAMS, Http2

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"")
POST = [(":method", "POST"), (":scheme", "https"), (":authority", "x"), (":path", "/")]


def block(size_bytes: int) -> bytes:
    """A field block of this length, most of it long Huffman codes; its request has a target of one byte."""
    codes = "\x02" * max(0, (size_bytes - 80) * 8 // 28)
    fields = hpack.Encoder().encode([*POST, ("a", codes)])
    left_bytes = size_bytes - len(fields) - len(b"\0\1b\0")
    return fields + b"\0\1b" + bytes((left_bytes,)) + b"x" * left_bytes


OPEN = frame(HEADERS, END_HEADERS, 1, block(100))
HALF = MAX_FRAME_BYTES // 2
BOUNDS = [
    (frame(SETTINGS, 0, 0, bytes(6 * MAX_SETTINGS)), 0),
    (frame(SETTINGS, 0, 0, bytes(6 * MAX_SETTINGS + 6)), None),
    (OPEN, 1),
    (OPEN + frame(DATA, 0, 1, bytes(16384)), 1 + 16384),
    (OPEN + frame(DATA, PADDED, 1, b"\xff" + bytes(16383)), 1 + 16384 - 256),
    (OPEN + frame(DATA, 0, 1, bytes(16384))[:-1], 1 + 9 + 16383),
    (OPEN + frame(DATA, 0, 1, bytes(16385)), None),
    (OPEN + frame(DATA, 0, 1, bytes(10))[:5], 1 + 5),
    (frame(0xFF, 0, 1, bytes(16384)), 0),
    (frame(0xFF, 0, 1, bytes(16385)), None),
    (frame(HEADERS, 0, 1, bytes(100)), 100),
    (frame(HEADERS, 0, 1, bytes(100)) + frame(CONTINUATION, 0, 1, bytes(100))[:-1], 100 + 9 + 99),
    (frame(HEADERS, 0, 1, block(200)[:100]) + frame(CONTINUATION, END_HEADERS, 1, block(200)[100:]), 1),
    (
        frame(HEADERS, END_HEADERS, 1, block(MAX_FIELD_BYTES)) + frame(HEADERS, END_HEADERS, 3, block(MAX_FIELD_BYTES)),
        2,
    ),
    (frame(HEADERS, 0, 1, bytes(MAX_FIELD_BYTES)) + frame(CONTINUATION, END_HEADERS, 1, b"\0"), None),
    (frame(HEADERS, 0, 1, bytes(HALF)) + frame(CONTINUATION, 0, 1, bytes(HALF + 1))[:9], None),
    (frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, b"") * (MAX_CONTINUATIONS - 1), 0),
    (frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, b"") * MAX_CONTINUATIONS, None),
    (frame(HEADERS, END_HEADERS, 1, b"\x40\x01a\x7f\xa1\x1f" + bytes(4000) + b"\xbe" * 5), None),
]


@pytest.mark.parametrize("step", [1, 7, 512, 1 << 20])
@pytest.mark.parametrize(("sent", "held_bytes"), BOUNDS)
def test_frames_are_bounded_however_they_arrive(sent: bytes, held_bytes: int | None, step: int) -> None:
    codec, received = Http2(), PREFACE + sent

    def receive() -> None:
        for start in range(0, len(received), step):
            assert codec.receive(received[start : start + step]) == []

    if held_bytes is None:
        with pytest.raises(HttpError):
            receive()
        assert codec.held_bytes == 0
    else:
        receive()
        assert codec.held_bytes == held_bytes


def state_bytes(codec: Http2) -> int:
    """The length of everything that a connection remembers, as text."""
    return sum(len(repr(value)) for name, value in vars(codec).items() if name not in {"_decoder", "_encoder"})


def test_settings_that_mean_nothing_are_forgotten() -> None:
    codec = Http2()
    codec.receive(PREFACE)
    codec.to_send()
    before = state_bytes(codec)
    for first in range(0x100, 0x1000, MAX_SETTINGS):
        settings = b"".join(code.to_bytes(2, "big") + bytes(4) for code in range(first, first + MAX_SETTINGS))
        codec.receive(frame(SETTINGS, 0, 0, settings))
        codec.to_send()
    assert state_bytes(codec) == before


def test_closed_streams_are_forgotten() -> None:
    """A client that resets its requests at once has no more of them than others (CVE-2023-44487)."""
    codec, client = Http2(), h2.connection.H2Connection()
    client.initiate_connection()
    codec.receive(client.data_to_send())
    before = state_bytes(codec)
    for number in range(20 * MAX_STREAMS):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, POST, end_stream=bool(number % 2))
        client.reset_stream(stream)
        assert codec.receive(client.data_to_send()) == []
    assert codec.held_bytes == 0
    assert state_bytes(codec) <= before + 20 * MAX_STREAMS * len(", 4000")  # take_reset() tells of each
    assert len(codec.take_reset()) == 10 * MAX_STREAMS
    assert state_bytes(codec) <= before + 10


def test_what_targets_hold_counts() -> None:
    codec, client = Http2(), h2.connection.H2Connection()
    client.initiate_connection()
    path = "/" + "x" * (MAX_FIELD_BYTES // 2)
    for _ in range(10):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, [*POST[:-1], (":path", path)])
    codec.receive(client.data_to_send())
    assert codec.held_bytes == 10 * len(path)


HEADS = [
    b"GET /" + b"x" * HEAD_BYTES,
    b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a:\r\n" * (HEAD_BYTES // 4),
    b"GET / HTTP/1.1\r\nhost: x\r\na: b\r\n" + b" c\r\n" * (HEAD_BYTES // 4),
    b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"a:\r\n" * (HEAD_BYTES // 4 + 200),
]


@pytest.mark.parametrize("sent", HEADS)
def test_heads_of_http1_are_bounded(sent: bytes) -> None:
    codec = Http1()

    def receive() -> None:
        for start in range(0, len(sent), 512):
            assert codec.receive(sent[start : start + 512]) == []

    with pytest.raises(HttpError):
        receive()
    assert codec.to_send().startswith(b"HTTP/1.1 431 ")
