"""What a connection of HTTP may hold, and have taken apart in one go."""

import gc

import h2.connection
import hpack
import pytest
from http2_frames import CONTINUATION, DATA, END_HEADERS, GREETING, HEADERS, PADDED, POST, SETTINGS, frame, headers

from kdns.dnsserver.doh.exchange import HttpError
from kdns.dnsserver.doh.http1 import HEAD_BYTES, Http1
from kdns.dnsserver.doh.http2 import (
    FRAME_COST_BYTES,
    MAX_FIELD_BYTES,
    MAX_FRAME_BYTES,
    MAX_SETTINGS,
    MAX_STREAMS,
    STREAM_COST_BYTES,
    Http2,
)

ROOT = [*POST[:3], (":path", "/")]


def block(size_bytes: int) -> bytes:
    """A field block of this length, most of it long Huffman codes; its request has a target of one byte."""
    codes = "\x02" * max(0, (size_bytes - 80) * 8 // 28)
    fields = hpack.Encoder().encode([*ROOT, ("a", codes)])
    left_bytes = size_bytes - len(fields) - len(b"\0\1b\0")
    return fields + b"\0\1b" + bytes((left_bytes,)) + b"x" * left_bytes


OPEN = headers(*ROOT)
OPEN_BYTES = 1 + STREAM_COST_BYTES
HALF = MAX_FRAME_BYTES // 2
BOUNDS = [
    (frame(SETTINGS, 0, 0, bytes(6 * MAX_SETTINGS)), 0),
    (frame(SETTINGS, 0, 0, bytes(6 * MAX_SETTINGS + 6)), None),
    (OPEN, OPEN_BYTES),
    (OPEN + frame(DATA, 0, 1, bytes(16384)), OPEN_BYTES + 16384),
    (OPEN + frame(DATA, PADDED, 1, b"\xff" + bytes(16383)), OPEN_BYTES + 16384 - 256),
    (OPEN + frame(DATA, 0, 1, bytes(16384))[:-1], OPEN_BYTES + 9 + 16383),
    (OPEN + frame(DATA, 0, 1, bytes(16385))[:9], None),
    (OPEN + frame(DATA, 0, 1, bytes(10))[:5], OPEN_BYTES + 5),
    (frame(0xFF, 0, 1, bytes(16384)), 0),
    (frame(0xFF, 0, 1, bytes(16385))[:9], None),
    (frame(HEADERS, 0, 1, bytes(100)), 100 + FRAME_COST_BYTES),
    (
        frame(HEADERS, 0, 1, bytes(100)) + frame(CONTINUATION, 0, 1, bytes(100)) * 2 + bytes(8),
        300 + 3 * FRAME_COST_BYTES + 8,
    ),
    (frame(HEADERS, 0, 1, block(200)[:100]) + frame(CONTINUATION, END_HEADERS, 1, block(200)[100:]), OPEN_BYTES),
    (headers(*ROOT, ("a", "b" * (MAX_FIELD_BYTES - 300))), OPEN_BYTES),
    (frame(HEADERS, 0, 1, bytes(MAX_FIELD_BYTES)) + frame(CONTINUATION, END_HEADERS, 1, b"\0"), None),
    (frame(HEADERS, 0, 1, bytes(HALF)) + frame(CONTINUATION, 0, 1, bytes(HALF + 1))[:9], None),
    (frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, b"") * 64, None),
    (frame(HEADERS, END_HEADERS, 1, b"\x40\x01a\x7f\xa1\x1f" + bytes(4000) + b"\xbe" * 5), None),
]


@pytest.mark.parametrize("step", [1, 7, 512, 1 << 20])
@pytest.mark.parametrize(("sent", "held_bytes"), BOUNDS)
def test_frames_are_bounded_however_they_arrive(sent: bytes, held_bytes: int | None, step: int) -> None:
    codec, received = Http2(), GREETING + sent

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


def objects_of(codec: Http2) -> int:
    """How many values a connection refers to, in all depths."""
    seen: set[int] = set()
    found: list[object] = [codec.__dict__]
    while found:
        value = found.pop()
        if id(value) not in seen and not isinstance(value, type) and type(value).__name__ not in {"module", "function"}:
            seen.add(id(value))
            found += gc.get_referents(value)
    return len(seen)


def test_settings_that_mean_nothing_are_forgotten() -> None:
    codec = Http2()
    codec.receive(GREETING)
    codec.to_send()
    before = objects_of(codec)
    for first in range(0x100, 0x1000, MAX_SETTINGS):
        settings = b"".join(code.to_bytes(2) + bytes(4) for code in range(first, first + MAX_SETTINGS))
        codec.receive(frame(SETTINGS, 0, 0, settings))
        codec.to_send()
    assert objects_of(codec) <= before + 10


def test_closed_streams_are_forgotten() -> None:
    """A client that resets its requests at once has no more of them than others (CVE-2023-44487)."""
    codec, client = Http2(), h2.connection.H2Connection()
    client.initiate_connection()
    sizes = []
    for number in range(20 * MAX_STREAMS):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, POST, end_stream=bool(number % 2))
        client.reset_stream(stream)
        assert codec.receive(client.data_to_send()) == []
        assert codec.take_reset() == [stream]
        codec.to_send()
        if number % (2 * MAX_STREAMS) == 0:
            sizes.append(objects_of(codec))
    assert codec.held_bytes == 0
    assert max(sizes[2:]) <= sizes[1] + 20


def test_what_targets_hold_counts() -> None:
    codec, client = Http2(), h2.connection.H2Connection()
    client.initiate_connection()
    path = "/" + "x" * (MAX_FIELD_BYTES // 2)
    for _ in range(10):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, [*POST[:-1], (":path", path)])
    codec.receive(client.data_to_send())
    assert codec.held_bytes == 10 * (len(path) + STREAM_COST_BYTES)


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
