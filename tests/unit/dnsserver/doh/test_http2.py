"""HTTP/2 of a connection: errors, both directions of flow control, and requests that are given up."""

from http import HTTPStatus

import h2.connection
import h2.events
import pytest
from h2.errors import ErrorCodes
from http2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    GREETING,
    HEADERS,
    PADDED,
    PING,
    POST,
    RST_STREAM,
    SETTINGS,
    block,
    frame,
    frames_of,
    headers,
    setting,
    window,
)

from kdns.dns.query import MAX_MESSAGE_BYTES
from kdns.dnsserver.doh.exchange import HttpError
from kdns.dnsserver.doh.http2 import MAX_STREAMS, STREAM_COST_BYTES, WINDOW_BYTES, Http2

TYPE = ("content-type", "application/dns-message")
OK = HTTPStatus.OK
OPEN = headers(*POST)
WHOLE = headers(*POST, flags=END_HEADERS | END_STREAM)
RESET = frame(RST_STREAM, 0, 1, bytes(4))


def greeted() -> Http2:
    codec = Http2()
    codec.receive(GREETING)
    codec.to_send()
    return codec


CONNECTION_ERRORS = {
    "another preface": (b"GET / HTTP/1.1\r\n", ErrorCodes.PROTOCOL_ERROR),
    "a preface with another end": (GREETING[:23] + b"x", ErrorCodes.PROTOCOL_ERROR),
    "a frame that is too long": (GREETING + frame(DATA, 0, 1, bytes(16385)), ErrorCodes.FRAME_SIZE_ERROR),
    "a window that grows by 0": (GREETING + window(0, 0), ErrorCodes.PROTOCOL_ERROR),
    "a stream's window that grows by 0": (GREETING + OPEN + window(1, 0), ErrorCodes.PROTOCOL_ERROR),
    "data on an idle stream": (GREETING + frame(DATA, 0, 1, b"x"), ErrorCodes.PROTOCOL_ERROR),
    "no path": (GREETING + headers(*POST[:3]), ErrorCodes.PROTOCOL_ERROR),
    "an index that means nothing": (GREETING + frame(HEADERS, END_HEADERS, 1, b"\xfe"), ErrorCodes.PROTOCOL_ERROR),
    "three updates of the table's size": (
        GREETING + frame(HEADERS, END_HEADERS, 1, b"\x20\x3e\x3f\x45" + block(*POST)),
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "more data than the stream's window": (
        GREETING + OPEN + frame(DATA, PADDED, 1, b"\xff" + bytes(255)) * (WINDOW_BYTES // 256 + 1),
        ErrorCodes.FLOW_CONTROL_ERROR,
    ),
    "a request too many": (
        GREETING + b"".join(headers(*POST, stream=2 * number + 1) for number in range(MAX_STREAMS + 1)),
        ErrorCodes.PROTOCOL_ERROR,
    ),
}


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
    assert (kind, stream, ErrorCodes(int.from_bytes(payload[4:8]))) == (GOAWAY, 0, code)
    assert (codec.is_over, codec.held_bytes) == (True, 0)
    assert codec.receive(GREETING + WHOLE) == []
    codec.respond(1, OK, (), b"late")
    codec.close()
    assert codec.to_send() == b""


VALID = {
    "a body in pieces": OPEN + frame(DATA, 0, 1, b"a") + frame(DATA, 0, 1, b"") + frame(DATA, END_STREAM, 1, b"b"),
    "padding": frame(HEADERS, END_HEADERS | PADDED, 1, b"\5" + block(*POST) + bytes(5))
    + frame(DATA, END_STREAM | PADDED, 1, b"\3ab" + bytes(3)),
    "trailers": headers(*POST, ("content-length", "2"))
    + frame(DATA, 0, 1, b"ab") + headers(("a", "b"), flags=END_HEADERS | END_STREAM),
    "continuations": frame(HEADERS, 0, 1, block(*POST)[:3]) + frame(CONTINUATION, 0, 1, block(*POST)[3:5])
    + frame(CONTINUATION, END_HEADERS, 1, block(*POST)[5:]) + frame(DATA, END_STREAM, 1, b"ab"),
    "cookies": headers(*POST, ("cookie", "a"), ("cookie", "")) + frame(DATA, END_STREAM, 1, b"ab"),
    "other frames": frame(0xFE, 0xFF, 7, b"x") + OPEN + frame(0xFE, 0, 0, b"") + frame(SETTINGS, ACK, 0, b"")
    + frame(PING, ACK, 0, bytes(8)) + window(1, 1) + window(0, 1) + setting(0xFFFF, 7) + setting(3, 0)
    + frame(DATA, END_STREAM, 1, b"ab"),
    "two updates of the table's size": frame(HEADERS, END_HEADERS, 1, b"\x20\x3f\xe1\x1f" + block(*POST))
    + frame(DATA, END_STREAM, 1, b"ab"),
}  # fmt: skip


@pytest.mark.parametrize("step", [1, 1 << 20])
@pytest.mark.parametrize("about", VALID)
def test_requests_in_every_form(about: str, step: int) -> None:
    codec, sent = greeted(), VALID[about]
    requests = [request for start in range(0, len(sent), step) for request in codec.receive(sent[start : start + step])]
    assert [(request.stream, request.method, request.target, request.body) for request in requests] == [
        (1, "POST", "/dns-query", b"ab")
    ]
    assert {kind for kind, *_ in frames_of(codec.to_send())} <= {SETTINGS}
    assert (codec.is_incomplete, codec.held_bytes) == (False, 0)


def test_equal_blocks_have_the_fields_of_the_table_at_their_time() -> None:
    """The same byte refers to the newest entry of the dynamic table, or to its third one."""
    codec, first, newest, third = greeted(), b"\x44\x02/a", b"\xbe", b"\xc0"
    targets = []
    for number, fields in enumerate((first, first, newest, newest, b"\x44\x02/b", newest, third)):
        (request,) = codec.receive(frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, block(*POST[:3]) + fields))
        targets.append(request.target)
    assert targets == ["/a", "/a", "/a", "/a", "/b", "/b", "/a"]


def test_pings_and_settings_are_acknowledged() -> None:
    codec = greeted()
    codec.receive(frame(PING, 0, 0, b"12345678") + setting(1, 0))
    assert list(frames_of(codec.to_send())) == [(PING, ACK, 0, b"12345678"), (SETTINGS, ACK, 0, b"")]


def test_a_request_that_is_reset_is_given_up() -> None:
    codec = greeted()
    assert codec.receive(WHOLE + RESET) == []
    assert codec.take_reset() == [1]
    (request,) = codec.receive(headers(*POST, stream=3, flags=END_HEADERS | END_STREAM))
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
        (request,) = codec.receive(headers(*POST, stream=stream, flags=END_HEADERS | END_STREAM))
        codec.receive(frame(DATA, 0, stream, b"x"))
        assert codec.take_reset() == [request.stream]


def test_requests_that_were_begun_are_answered_behind_the_clients_goodbye() -> None:
    codec = greeted()
    assert codec.receive(setting(4, 2) + WHOLE + frame(GOAWAY, 0, 0, bytes(8)) + headers(*POST, stream=3)) != []
    assert codec.is_over
    codec.respond(1, OK, (), b"body")
    codec.receive(window(1, 2))
    assert [kind for kind, *_ in frames_of(codec.to_send())] == [SETTINGS, HEADERS, DATA, DATA]


def test_a_goodbye_names_the_last_stream() -> None:
    codec = greeted()
    codec.receive(headers(*POST, stream=5) + headers(*POST, stream=9))
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
    assert (sent_data(codec), codec.blocked_bytes, codec.held_bytes) == ([], 100, 100 + STREAM_COST_BYTES)
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
    assert (sent_data(codec), codec.blocked_bytes, codec.held_bytes) == ([(1, 69, True)], 0, 0)


def test_responses_wait_for_the_connections_window() -> None:
    codec = greeted()
    codec.receive(WHOLE + headers(*POST, stream=3, flags=END_HEADERS | END_STREAM))
    codec.respond(1, OK, (), bytes(65000))
    assert sum(size for _, size, _ in sent_data(codec)) == 65000
    codec.respond(3, OK, (), bytes(1000))
    assert (sent_data(codec), codec.blocked_bytes) == ([(3, 535, False)], 465)
    codec.receive(window(3, 1000) + setting(4, 70000))
    assert sent_data(codec) == []
    codec.receive(window(0, 1))
    assert sent_data(codec) == [(3, 1, False)]
    codec.receive(frame(RST_STREAM, 0, 3, bytes(4)) + window(0, 1000))
    assert (sent_data(codec), codec.blocked_bytes, codec.held_bytes) == ([], 0, 0)


def test_an_empty_response_needs_no_window() -> None:
    codec = greeted()
    codec.receive(setting(4, 0) + WHOLE)
    codec.respond(1, OK, (), b"")
    assert sent_data(codec) == [(1, 0, True)]


def connected() -> tuple[Http2, h2.connection.H2Connection]:
    """A connection, and h2 as its client, which refuses to send more than the windows allow."""
    codec, client = Http2(), h2.connection.H2Connection()
    client.initiate_connection()
    client.receive_data(codec.to_send())
    return codec, client


def test_the_window_of_a_client_is_opened_again() -> None:
    codec, client = connected()
    for number in range(20):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, POST)
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


def test_the_window_stays_closed_by_requests_that_are_not_answered() -> None:
    codec, client = connected()
    streams = []
    while client.outbound_flow_control_window >= MAX_MESSAGE_BYTES:
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, POST)
        for size_bytes in (16384, 16384, 16384, 16383):
            client.send_data(stream, bytes(size_bytes), end_stream=size_bytes == 16383)
        assert len(codec.receive(client.data_to_send())) == 1
        client.receive_data(codec.to_send())
        streams.append(stream)
    assert len(streams) == 2
    for stream in streams:
        codec.respond(stream, OK, (), b"")
    client.receive_data(codec.to_send())
    assert client.outbound_flow_control_window >= MAX_MESSAGE_BYTES


def test_the_window_of_what_is_given_up_is_opened_again() -> None:
    codec, opened_bytes = greeted(), 0
    for stream in range(1, 101, 2):
        body = frame(DATA, 0, stream, bytes(16000))
        codec.receive(headers(*POST, stream=stream) + body)
        codec.receive(frame(RST_STREAM, 0, stream, bytes(4)) + body)
        for kind, _, updated, payload in frames_of(codec.to_send()):
            if kind != RST_STREAM:
                assert updated == 0
                opened_bytes += int.from_bytes(payload)
    assert 0 <= 100 * 16000 - opened_bytes <= (65535 + WINDOW_BYTES) // 2


def test_a_body_that_is_too_long_is_answered_and_its_end_dropped() -> None:
    codec, client = connected()
    for _ in range(3):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, POST)
        unsent_bytes, requests = 500_000, []
        while unsent_bytes:
            room = min(client.local_flow_control_window(stream), client.max_outbound_frame_size, unsent_bytes)
            assert room
            unsent_bytes -= room
            client.send_data(stream, bytes(room), end_stream=not unsent_bytes)
            received = codec.receive(client.data_to_send())
            for request in received:
                codec.respond(request.stream, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, (), b"")
            requests += received
            client.receive_data(codec.to_send())
        assert [(request.stream, request.is_cut, request.body) for request in requests] == [(stream, True, b"")]
        assert (codec.is_incomplete, codec.held_bytes) == (False, 0)


@pytest.mark.parametrize("sizes", [(100,), (0, 0), (200, 0, 300), (65536,)])
def test_a_smaller_table_of_the_client_is_kept_to(sizes: tuple[int, ...]) -> None:
    codec, client = Http2(), h2.connection.H2Connection()
    client.initiate_connection()
    codec.receive(client.data_to_send())
    for size in sizes * 10:
        client.update_settings({1: size})
    for _ in range(2):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, POST, end_stream=True)
        (request,) = codec.receive(client.data_to_send())
        codec.respond(request.stream, OK, [TYPE], b"body")
        events = client.receive_data(codec.to_send())
        (received,) = (event for event in events if isinstance(event, h2.events.ResponseReceived))
        fields = {b":status": b"200", b"content-length": b"4", TYPE[0].encode(): TYPE[1].encode()}
        assert dict(received.headers or ()) == fields
