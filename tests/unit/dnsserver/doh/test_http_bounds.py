"""What a connection of HTTP may hold, and have taken apart in one go."""

from __future__ import annotations

import h2.connection
import pytest

from kdns.dnsserver.doh.codec import HttpError
from kdns.dnsserver.doh.frames import MAX_FIELD_BYTES, MAX_SETTINGS, FrameBounds
from kdns.dnsserver.doh.http1 import HEAD_BYTES, Http1
from kdns.dnsserver.doh.http2 import MAX_STREAMS, Http2

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, CONTINUATION = 0, 1, 4, 9
END_HEADERS = 4


def frame(kind: int, size_bytes: int, flags: int = 0) -> bytes:
    return size_bytes.to_bytes(3, "big") + bytes((kind, flags, 0, 0, 0, 1)) + bytes(size_bytes)


BOUNDS = [
    (frame(SETTINGS, 6 * MAX_SETTINGS), 0),
    (frame(SETTINGS, 6 * MAX_SETTINGS + 6), None),
    (frame(DATA, 16384), 0),
    (frame(DATA, 16384)[:-1], 16383),
    (frame(DATA, 10)[:5], 0),
    (frame(HEADERS, 100), 100),
    (frame(HEADERS, 100) + frame(CONTINUATION, 100)[:-1], 200),
    (frame(HEADERS, 100) + frame(CONTINUATION, 100, END_HEADERS), 0),
    (frame(HEADERS, MAX_FIELD_BYTES, END_HEADERS) * 2, 0),
    (frame(HEADERS, MAX_FIELD_BYTES) + frame(CONTINUATION, 1, END_HEADERS), None),
    (frame(HEADERS, 0) + frame(CONTINUATION, 0) * 3 + frame(DATA, 0), 0),
]


@pytest.mark.parametrize("step", [1, 7, 512, 1 << 20])
@pytest.mark.parametrize(("sent", "held_bytes"), BOUNDS)
def test_frames_are_bounded_however_they_arrive(sent: bytes, held_bytes: int | None, step: int) -> None:
    bounds, received = FrameBounds(), PREFACE + sent

    def receive() -> None:
        for start in range(0, len(received), step):
            bounds.receive(received[start : start + step])

    if held_bytes is None:
        with pytest.raises(HttpError):
            receive()
    else:
        receive()
        assert bounds.held_bytes == held_bytes


def test_settings_that_mean_nothing_are_forgotten() -> None:
    codec = Http2()
    codec.receive(PREFACE)
    before = len(codec._h2.remote_settings)  # noqa: SLF001 - nothing public tells
    for first in range(0x100, 0x1000, MAX_SETTINGS):
        settings = b"".join(code.to_bytes(2, "big") + bytes(4) for code in range(first, first + MAX_SETTINGS))
        codec.receive(len(settings).to_bytes(3, "big") + bytes((SETTINGS, 0, 0, 0, 0, 0)) + settings)
    assert len(codec._h2.remote_settings) == before  # noqa: SLF001 - see above


def test_closed_streams_are_forgotten() -> None:
    codec, client = Http2(), h2.connection.H2Connection()
    client.initiate_connection()
    for _ in range(20 * MAX_STREAMS):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, [(":method", "GET"), (":path", "/"), (":scheme", "https"), (":authority", "x")])
        client.reset_stream(stream)
        codec.receive(client.data_to_send())
    assert len(codec.take_reset()) == 20 * MAX_STREAMS
    assert len(codec._h2._closed_streams) <= 10 * MAX_STREAMS  # noqa: SLF001 - nothing public tells


def test_what_targets_hold_counts() -> None:
    codec, client = Http2(), h2.connection.H2Connection()
    client.initiate_connection()
    path = "/" + "x" * (MAX_FIELD_BYTES // 2)
    for _ in range(10):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, [(":method", "POST"), (":path", path), (":scheme", "https"), (":authority", "x")])
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
