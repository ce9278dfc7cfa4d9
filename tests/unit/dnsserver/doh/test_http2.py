"""HTTP/2 of a connection: the client's errors, both directions of flow control, and requests that are given up."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import h2.connection
import h2.events
import hpack
import pytest

from kdns.dns.query import MAX_MESSAGE_BYTES
from kdns.dnsserver.doh.codec import HttpError
from kdns.dnsserver.doh.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEAD,
    HEADERS,
    MAX_WINDOW_BYTES,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    frame,
)
from kdns.dnsserver.doh.http2 import (
    CONNECTION_WINDOW_BYTES,
    MAX_STREAMS,
    STREAM_WINDOW_BYTES,
    Http2,
)

MAGIC = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PSEUDO = ((":method", "POST"), (":scheme", "https"), (":authority", "x"), (":path", "/dns-query"))
TYPE = ("content-type", "application/dns-message")
OK = HTTPStatus.OK
STREAM_1 = (1).to_bytes(4, "big")


def block(*fields: tuple[str, str]) -> bytes:
    """Fields that are not added to the dynamic table, so that their bytes have one meaning."""
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(name, value) for name, value in fields])


def headers(*fields: tuple[str, str], stream: int = 1, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, block(*fields))


def setting(code: int, value: int) -> bytes:
    return frame(SETTINGS, 0, 0, code.to_bytes(2, "big") + value.to_bytes(4, "big"))


def window(stream: int, size_bytes: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, size_bytes.to_bytes(4, "big"))


def frames_of(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """The type, flags, stream and payload of each frame."""
    while data:
        size_and_kind, flags, stream = HEAD.unpack_from(data)
        end = HEAD.size + (size_and_kind >> 8)
        yield size_and_kind & 0xFF, flags, stream, data[HEAD.size : end]
        data = data[end:]


def greeted() -> Http2:
    codec = Http2()
    codec.receive(MAGIC + frame(SETTINGS, 0, 0, b""))
    codec.to_send()
    return codec


GREETING = MAGIC + frame(SETTINGS, 0, 0, b"")
OPEN = headers(*PSEUDO)
WHOLE = headers(*PSEUDO, flags=END_HEADERS | END_STREAM)
RESET = frame(RST_STREAM, 0, 1, bytes(4))
C, P, S, F, K = (
    ErrorCode.STREAM_CLOSED,
    ErrorCode.PROTOCOL_ERROR,
    ErrorCode.FRAME_SIZE_ERROR,
    ErrorCode.FLOW_CONTROL_ERROR,
    ErrorCode.COMPRESSION_ERROR,
)

CONNECTION_ERRORS = {
    "another preface": (b"GET / HTTP/1.1\r\n", P),
    "a preface with another end": (MAGIC[:-1] + b"x", P),
    "no settings first": (MAGIC + frame(PING, 0, 0, bytes(8)), P),
    "settings on a stream": (MAGIC + frame(SETTINGS, 0, 1, b""), P),
    "settings of 5 bytes": (MAGIC + frame(SETTINGS, 0, 0, bytes(5)), S),
    "an acknowledgement with settings": (GREETING + frame(SETTINGS, ACK, 0, bytes(6)), S),
    "push is 2": (GREETING + setting(2, 2), P),
    "a window of 2^31": (GREETING + setting(4, 1 << 31), F),
    "frames of 16383 bytes": (GREETING + setting(5, 16383), P),
    "frames of 2^24 bytes": (GREETING + setting(5, 1 << 24), P),
    "a ping of 7 bytes": (GREETING + frame(PING, 0, 0, bytes(7)), S),
    "a ping on a stream": (GREETING + frame(PING, 0, 1, bytes(8)), P),
    "a goodbye on a stream": (GREETING + frame(GOAWAY, 0, 1, bytes(8)), P),
    "a goodbye of 7 bytes": (GREETING + frame(GOAWAY, 0, 0, bytes(7)), S),
    "a priority of 4 bytes": (GREETING + frame(PRIORITY, 0, 1, bytes(4)), S),
    "a priority of the connection": (GREETING + frame(PRIORITY, 0, 0, bytes(5)), P),
    "a promise": (GREETING + OPEN + frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)), P),
    "data on the connection": (GREETING + frame(DATA, 0, 0, b"x"), P),
    "data on an idle stream": (GREETING + frame(DATA, 0, 1, b"x"), P),
    "data that is all padding": (GREETING + OPEN + frame(DATA, PADDED, 1, b"\1"), P),
    "data without its padding's length": (GREETING + OPEN + frame(DATA, PADDED, 1, b""), P),
    "a reset of an idle stream": (GREETING + RESET, P),
    "a reset of 3 bytes": (GREETING + OPEN + frame(RST_STREAM, 0, 1, bytes(3)), S),
    "a window of an idle stream": (GREETING + window(1, 1), P),
    "a window of 3 bytes": (GREETING + frame(WINDOW_UPDATE, 0, 0, bytes(3)), S),
    "a window that grows by 0": (GREETING + window(0, 0), P),
    "a window that grows too large": (GREETING + window(0, MAX_WINDOW_BYTES), F),
    "a stream's window that settings make too large": (
        GREETING + OPEN + window(1, MAX_WINDOW_BYTES - 65535) + setting(4, 65536),
        F,
    ),
    "headers on an even stream": (GREETING + headers(*PSEUDO, stream=2), P),
    "headers on the connection": (GREETING + headers(*PSEUDO, stream=0), P),
    "headers without their priority": (GREETING + frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, bytes(4)), S),
    "headers that are all padding": (GREETING + frame(HEADERS, END_HEADERS | PADDED, 1, b"\2\0"), P),
    "a continuation of nothing": (GREETING + frame(CONTINUATION, END_HEADERS, 1, b""), P),
    "a ping between headers": (GREETING + headers(*PSEUDO, flags=0) + frame(PING, 0, 0, bytes(8)), P),
    "an unknown frame between headers": (GREETING + headers(*PSEUDO, flags=0) + frame(0xFE, 0, 1, b""), P),
    "a continuation of another stream": (
        GREETING + OPEN + headers(*PSEUDO, stream=3, flags=0) + frame(CONTINUATION, END_HEADERS, 1, b""),
        P,
    ),
    "an index that means nothing": (GREETING + frame(HEADERS, END_HEADERS, 1, b"\xfe"), K),
    "a field that is cut": (GREETING + frame(HEADERS, END_HEADERS, 1, b"\x04\x05/a"), K),
    "a Huffman code that is not whole": (GREETING + frame(HEADERS, END_HEADERS, 1, b"\x04\x81\x00"), K),
    "a wrong Huffman code": (GREETING + frame(HEADERS, END_HEADERS, 1, b"\x04\x84\xff\xff\xff\xff"), K),
    "more data than the connection's window": (
        GREETING
        + OPEN + headers(*PSEUDO, stream=3)
        + (frame(DATA, 0, 1, bytes(16000)) + frame(DATA, 0, 3, bytes(16000))) * (STREAM_WINDOW_BYTES // 16000)
        + headers(*PSEUDO, stream=5) + frame(DATA, 0, 5, bytes(16000)),
        F,
    ),
}  # fmt: skip


@pytest.mark.parametrize("step", [1, 1 << 20])
@pytest.mark.parametrize("about", CONNECTION_ERRORS)
def test_errors_of_a_connection_end_it(about: str, step: int) -> None:
    sent, code = CONNECTION_ERRORS[about]
    codec = Http2()

    def receive() -> None:
        for start in range(0, len(sent), step):
            assert codec.receive(sent[start : start + step]) == []

    with pytest.raises(HttpError):
        receive()
    *_, (kind, _, stream, payload) = frames_of(codec.to_send())
    assert (kind, stream, ErrorCode(int.from_bytes(payload[4:8], "big"))) == (GOAWAY, 0, code)
    assert codec.is_over
    assert codec.receive(GREETING + WHOLE) == []
    codec.respond(1, OK, (), b"late")
    codec.close()
    assert codec.to_send() == b""


def malformed(*fields: tuple[str, str]) -> bytes:
    return GREETING + headers(*fields)


STREAM_ERRORS = {
    "no path": (malformed(*PSEUDO[:3]), P),
    "an empty path": (malformed(*PSEUDO[:3], (":path", "")), P),
    "no scheme": (malformed(PSEUDO[0], *PSEUDO[2:]), P),
    "no method": (malformed(*PSEUDO[1:]), P),
    "neither authority nor host": (malformed(*PSEUDO[:2], PSEUDO[3]), P),
    "another host than the authority": (malformed(*PSEUDO, ("host", "y")), P),
    "a pseudo-header field twice": (malformed(*PSEUDO, PSEUDO[3]), P),
    "a pseudo-header field behind others": (malformed(*PSEUDO[:3], TYPE, PSEUDO[3]), P),
    "an unknown pseudo-header field": (malformed(*PSEUDO, (":protocol", "websocket")), P),
    "a response's field": (malformed(*PSEUDO, (":status", "200")), P),
    "a connection's field": (malformed(*PSEUDO, ("connection", "close")), P),
    "a coding of a transfer": (malformed(*PSEUDO, ("transfer-encoding", "chunked")), P),
    "te": (malformed(*PSEUDO, ("te", "gzip")), P),
    "an empty name": (malformed(*PSEUDO, ("", "a")), P),
    "a name with a blank": (malformed(*PSEUDO, ("a b", "a")), P),
    "a name with a colon": (malformed(*PSEUDO, ("a:b", "a")), P),
    "a name with a line feed": (malformed(*PSEUDO, ("a\nb", "a")), P),
    "a value with a line feed": (malformed(*PSEUDO, ("a", "b\nc\nd")), P),
    "a value with NUL": (malformed(*PSEUDO, ("a", "b\0c")), P),
    "a value with a carriage return": (malformed(*PSEUDO, ("a", "b\rc")), P),
    "a value behind a blank": (malformed(*PSEUDO, ("a", " b")), P),
    "a value before a tab": (malformed(*PSEUDO, ("a", "b\t")), P),
    "a path with a line feed": (malformed(*PSEUDO[:3], (":path", "/\nx")), P),
    "a length with a sign": (malformed(*PSEUDO, ("content-length", "+1")), P),
    "a length of 5000 digits": (malformed(*PSEUDO, ("content-length", "0" * 5000)), P),
    "two lengths": (malformed(*PSEUDO, ("content-length", "1"), ("content-length", "2")), P),
    "connect with a path": (malformed((":method", "CONNECT"), *PSEUDO[1:]), P),
    "a length and no body": (
        GREETING + headers(*PSEUDO, ("content-length", "1"), flags=END_HEADERS | END_STREAM), P,
    ),
    "a body that is longer than its length": (
        GREETING + headers(*PSEUDO, ("content-length", "1")) + frame(DATA, END_STREAM, 1, b"ab"), P,
    ),
    "trailers that do not end": (GREETING + OPEN + headers(("a", "b")), P),
    "trailers with a path": (GREETING + OPEN + headers((":path", "/"), flags=END_HEADERS | END_STREAM), P),
    "more data than the stream's window": (
        GREETING + OPEN + frame(DATA, PADDED, 1, b"\xff" + bytes(255)) * (STREAM_WINDOW_BYTES // 256 + 1), F,
    ),
    "data behind the end": (GREETING + OPEN + frame(DATA, END_STREAM, 1, b"a") + frame(DATA, 0, 1, b"b"), C),
    "data behind a reset": (GREETING + OPEN + RESET + frame(DATA, 0, 1, b"b"), C),
    "headers behind the end": (GREETING + WHOLE + WHOLE, C),
    "a stream's window that grows by 0": (GREETING + OPEN + window(1, 0), P),
    "a stream's window that grows too large": (GREETING + OPEN + window(1, MAX_WINDOW_BYTES), F),
    "headers on a stream that was skipped": (GREETING + headers(*PSEUDO, stream=3) + OPEN, C),
}  # fmt: skip


@pytest.mark.parametrize("step", [1, 1 << 20])
@pytest.mark.parametrize("about", STREAM_ERRORS)
def test_errors_of_a_stream_end_only_that(about: str, step: int) -> None:
    sent, code = STREAM_ERRORS[about]
    codec = Http2()
    for start in range(0, len(sent), step):
        for request in codec.receive(sent[start : start + step]):
            assert step == 1, "a request that was reset at once is not answered"
            assert request.stream == 1
    resets = [(stream, payload) for kind, _, stream, payload in frames_of(codec.to_send()) if kind == RST_STREAM]
    assert resets == [(1, code.to_bytes(4, "big"))]
    codec.respond(1, OK, (), b"late")
    assert codec.to_send() == b""
    (request,) = codec.receive(headers(*PSEUDO, TYPE, stream=999, flags=END_HEADERS | END_STREAM))
    assert (request.stream, request.method, request.target, request.content_type) == (
        999,
        "POST",
        PSEUDO[3][1],
        TYPE[1],
    )


def test_a_stream_too_many_is_refused() -> None:
    codec = greeted()
    for number in range(MAX_STREAMS + 1):
        codec.receive(headers(*PSEUDO, stream=2 * number + 1))
    assert list(frames_of(codec.to_send())) == [
        (RST_STREAM, 0, 2 * MAX_STREAMS + 1, ErrorCode.REFUSED_STREAM.to_bytes(4, "big"))
    ]
    codec.receive(RESET)
    (request,) = codec.receive(headers(*PSEUDO, stream=999, flags=END_HEADERS | END_STREAM))
    assert request.stream == 999


VALID = {
    "a body in pieces": OPEN + frame(DATA, 0, 1, b"a") + frame(DATA, 0, 1, b"") + frame(DATA, END_STREAM, 1, b"b"),
    "padding": frame(HEADERS, END_HEADERS | PADDED, 1, b"\5" + block(*PSEUDO) + bytes(5))
    + frame(DATA, END_STREAM | PADDED, 1, b"\3ab" + bytes(3)),
    "a priority": frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, STREAM_1 + b"\0" + block(*PSEUDO))
    + frame(PRIORITY, 0, 1, bytes(5)) + frame(PRIORITY, 0, 9, bytes(5)) + frame(DATA, END_STREAM, 1, b"ab"),
    "trailers": headers(*PSEUDO, ("content-length", "2"))
    + frame(DATA, 0, 1, b"ab") + headers(("a", "b"), flags=END_HEADERS | END_STREAM),
    "continuations": frame(HEADERS, 0, 1, block(*PSEUDO)[:3]) + frame(CONTINUATION, 0, 1, block(*PSEUDO)[3:5])
    + frame(CONTINUATION, END_HEADERS, 1, block(*PSEUDO)[5:]) + frame(DATA, END_STREAM, 1, b"ab"),
    "fields of any sort": headers(*PSEUDO, ("host", "x"), ("te", "trailers"), ("cookie", "a"), ("cookie", ""))
    + frame(DATA, END_STREAM, 1, b"ab"),
    "a host for an authority": headers(*PSEUDO[:2], PSEUDO[3], ("host", "x")) + frame(DATA, END_STREAM, 1, b"ab"),
    "other frames": frame(0xFE, 0xFF, 7, b"x") + OPEN + frame(0xFE, 0, 0, b"") + frame(SETTINGS, ACK, 0, b"")
    + frame(PING, ACK, 0, bytes(8)) + window(1, 1) + window(0, 1) + setting(0xFFFF, 7) + setting(3, 0)
    + frame(DATA, END_STREAM, 1, b"ab"),
    "the reserved bit": HEAD.pack(len(block(*PSEUDO)) << 8 | HEADERS, END_HEADERS, 1 << 31 | 1) + block(*PSEUDO)
    + frame(DATA, END_STREAM, 1, b"ab"),
}  # fmt: skip


@pytest.mark.parametrize("step", [1, 1 << 20])
@pytest.mark.parametrize("about", VALID)
def test_requests_in_every_form(about: str, step: int) -> None:
    codec, sent = greeted(), VALID[about]
    requests = [request for start in range(0, len(sent), step) for request in codec.receive(sent[start : start + step])]
    assert [(each.stream, each.method, each.target, each.body) for each in requests] == [
        (1, "POST", "/dns-query", b"ab")
    ]
    assert {kind for kind, *_ in frames_of(codec.to_send())} <= {SETTINGS}


def test_connect_has_no_path() -> None:
    (request,) = greeted().receive(headers((":method", "CONNECT"), (":authority", "x"), flags=END_HEADERS | END_STREAM))
    assert (request.method, request.target) == ("CONNECT", "")


def test_pings_and_settings_are_acknowledged() -> None:
    codec = greeted()
    codec.receive(frame(PING, 0, 0, b"12345678") + setting(1, 0))
    assert list(frames_of(codec.to_send())) == [(PING, ACK, 0, b"12345678"), (SETTINGS, ACK, 0, b"")]


def test_a_request_that_is_reset_is_given_up() -> None:
    codec = greeted()
    assert codec.receive(WHOLE + RESET) == []
    assert codec.take_reset() == [1]
    (request,) = codec.receive(headers(*PSEUDO, stream=3, flags=END_HEADERS | END_STREAM))
    codec.receive(frame(RST_STREAM, 0, request.stream, bytes(4)))
    assert codec.take_reset() == [3]
    assert codec.take_reset() == []
    codec.respond(3, OK, (), b"late")
    assert codec.to_send() == b""


def test_a_request_whose_stream_ends_by_an_error_is_given_up() -> None:
    """A client that has the server reset its streams gains no more by them (CVE-2025-8671)."""
    codec = greeted()
    for number in range(10 * MAX_STREAMS):
        stream = 2 * number + 1
        (request,) = codec.receive(headers(*PSEUDO, stream=stream, flags=END_HEADERS | END_STREAM))
        codec.receive((window(stream, 0), frame(DATA, 0, stream, b"x"))[number % 2])
        assert codec.take_reset() == [request.stream]


def test_requests_that_were_begun_are_answered_behind_the_clients_goodbye() -> None:
    codec = greeted()
    assert codec.receive(WHOLE + frame(GOAWAY, 0, 0, bytes(8)) + headers(*PSEUDO, stream=3)) != []
    assert codec.is_over
    codec.respond(1, OK, (), b"body")
    assert [kind for kind, *_ in frames_of(codec.to_send())] == [HEADERS, DATA]


def test_a_goodbye_names_the_last_stream() -> None:
    codec = greeted()
    codec.receive(headers(*PSEUDO, stream=5) + headers(*PSEUDO, stream=9))
    codec.close()
    assert list(frames_of(codec.to_send())) == [(GOAWAY, 0, 0, bytes((0, 0, 0, 9, 0, 0, 0, 0)))]


def sent_data(codec: Http2) -> list[tuple[int, int, bool]]:
    """The stream, length and end of each piece of a response."""
    return [
        (stream, len(payload), bool(flags & END_STREAM))
        for kind, flags, stream, payload in frames_of(codec.to_send())
        if kind == DATA
    ]


def test_responses_wait_for_the_streams_window() -> None:
    codec = greeted()
    codec.receive(setting(4, 0) + WHOLE)
    codec.respond(1, OK, (), bytes(100))
    assert (sent_data(codec), codec.is_blocked, codec.held_bytes) == ([], True, 100)
    codec.receive(window(1, 10))
    assert sent_data(codec) == [(1, 10, False)]
    codec.receive(window(0, 1000))
    assert sent_data(codec) == []
    codec.receive(setting(4, 20))
    assert sent_data(codec) == [(1, 20, False)]
    codec.receive(setting(4, 5) + window(1, 15))
    assert sent_data(codec) == []
    codec.receive(window(1, 1))
    assert sent_data(codec) == [(1, 1, False)]
    codec.receive(setting(4, 65535))
    assert (sent_data(codec), codec.is_blocked, codec.held_bytes) == ([(1, 69, True)], False, 0)


def test_responses_wait_for_the_connections_window() -> None:
    codec = greeted()
    codec.receive(WHOLE + headers(*PSEUDO, stream=3, flags=END_HEADERS | END_STREAM))
    codec.respond(1, OK, (), bytes(65000))
    assert sum(size for _, size, _ in sent_data(codec)) == 65000
    codec.respond(3, OK, (), bytes(1000))
    assert (sent_data(codec), codec.is_blocked) == ([(3, 535, False)], True)
    codec.receive(window(3, 1000) + setting(4, 70000))
    assert sent_data(codec) == []
    codec.receive(window(0, 1))
    assert sent_data(codec) == [(3, 1, False)]
    codec.receive(frame(RST_STREAM, 0, 3, bytes(4)) + window(0, 1000))
    assert (sent_data(codec), codec.is_blocked, codec.held_bytes) == ([], False, 0)


def test_an_empty_response_needs_no_window() -> None:
    codec = greeted()
    codec.receive(setting(4, 0) + WHOLE)
    codec.respond(1, OK, (), b"")
    assert sent_data(codec) == [(1, 0, True)]


def test_the_window_of_a_client_is_opened_again() -> None:
    """h2 as a client refuses to send more than the windows allow."""
    codec, client = Http2(), h2.connection.H2Connection()
    client.initiate_connection()
    client.receive_data(codec.to_send())
    assert client.outbound_flow_control_window == CONNECTION_WINDOW_BYTES
    for number in range(20):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, PSEUDO)
        body = bytes((number,)) * MAX_MESSAGE_BYTES
        while body:
            room = min(client.local_flow_control_window(stream), client.max_outbound_frame_size)
            assert room
            client.send_data(stream, body[:room], end_stream=room >= len(body))
            body = body[room:]
        (request,) = codec.receive(client.data_to_send())
        assert (request.body, request.is_cut) == (bytes((number,)) * MAX_MESSAGE_BYTES, False)
        codec.respond(stream, OK, (), b"x")
        client.receive_data(codec.to_send())


def test_the_window_of_what_is_given_up_is_opened_again() -> None:
    codec, opened_bytes = greeted(), 0
    for stream in range(1, 101, 2):
        body = frame(DATA, 0, stream, bytes(16000))
        codec.receive(headers(*PSEUDO, stream=stream) + body)
        codec.receive(frame(RST_STREAM, 0, stream, bytes(4)) + body)
        for kind, _, updated, payload in frames_of(codec.to_send()):
            if kind == WINDOW_UPDATE:
                assert updated == 0
                opened_bytes += int.from_bytes(payload, "big")
    assert 0 <= 100 * 16000 - opened_bytes < CONNECTION_WINDOW_BYTES // 4


def test_a_body_that_is_too_long_is_answered_and_its_end_dropped() -> None:
    codec, client = Http2(), h2.connection.H2Connection()
    client.initiate_connection()
    client.receive_data(codec.to_send())
    for _ in range(3):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, PSEUDO)
        left, requests = 500_000, []
        while left:
            room = min(client.local_flow_control_window(stream), client.max_outbound_frame_size, left)
            assert room
            left -= room
            client.send_data(stream, bytes(room), end_stream=not left)
            requests += codec.receive(client.data_to_send())
            for request in requests[:1] if len(requests) == 1 and codec.is_incomplete else ():
                codec.respond(request.stream, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, (), b"")
            client.receive_data(codec.to_send())
        assert [(each.stream, each.is_cut, each.body) for each in requests] == [(stream, True, b"")]
        assert (codec.is_incomplete, codec.held_bytes) == (False, 0)


def test_a_smaller_table_of_the_client_is_kept_to() -> None:
    codec, client = Http2(), h2.connection.H2Connection()
    client.initiate_connection()
    client.update_settings({1: 0})
    stream = client.get_next_available_stream_id()
    client.send_headers(stream, PSEUDO, end_stream=True)
    (request,) = codec.receive(client.data_to_send())
    codec.respond(request.stream, OK, [TYPE], b"body")
    events = client.receive_data(codec.to_send())
    (received,) = (event for event in events if isinstance(event, h2.events.ResponseReceived))
    assert dict(received.headers or ()) == {
        b":status": b"200",
        b"content-length": b"4",
        TYPE[0].encode(): TYPE[1].encode(),
    }
