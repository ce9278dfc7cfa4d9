"""HTTP/2 of DNS over HTTPS beside h2: the same requests of the same bytes, and responses that h2 accepts."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import hpack
from hypothesis import given
from hypothesis import strategies as st

from kdns.dnsserver.doh.codec import HttpError
from kdns.dnsserver.doh.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEAD,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from kdns.dnsserver.doh.http2 import MAX_FIELD_BYTES, MAX_STREAMS, STREAM_WINDOW_BYTES, Http2

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"")
PSEUDO = [(":method", "POST"), (":scheme", "https"), (":authority", "x"), (":path", "/dns-query")]
KIND_AT = 3
TYPE = ("content-type", "application/dns-message")


class H2:
    """A server of h2 with the same settings: the requests that are complete, or an error."""

    def __init__(self) -> None:
        config = h2.config.H2Configuration(client_side=False, header_encoding=None)
        self.h2 = h2.connection.H2Connection(config)
        self.h2.decoder.max_header_list_size = MAX_FIELD_BYTES
        codes = h2.settings.SettingCodes
        values = {codes.MAX_CONCURRENT_STREAMS: MAX_STREAMS, codes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES}
        self.h2.local_settings = h2.settings.Settings(client=False, initial_values=values)
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(STREAM_WINDOW_BYTES)
        self.h2.receive_data(PREFACE)
        self.begun: dict[int, tuple[dict[bytes, bytes], bytes]] = {}

    def requests(self, data: bytes) -> list[tuple[int, str, str, str, bytes]]:
        """Those that are complete now."""
        complete = []
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self.begun[event.stream_id or 0] = dict(event.headers or ()), b""
            elif isinstance(event, h2.events.DataReceived):
                fields, body = self.begun[event.stream_id or 0]
                self.begun[event.stream_id or 0] = fields, body + (event.data or b"")
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            elif isinstance(event, h2.events.StreamEnded):
                fields, body = self.begun.pop(event.stream_id or 0)
                texts = (fields.get(name, b"").decode() for name in (b":method", b":path", b"content-type"))
                complete.append((event.stream_id or 0, *texts, body))
        return complete  # type: ignore[return-value] # three texts


blocks = st.sampled_from(
    [
        hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(name, value) for name, value in fields])
        for fields in (
            PSEUDO,
            [*PSEUDO, TYPE],
            [*PSEUDO, ("a", " b")],
            [*PSEUDO, ("Upper", "b")],
            [*PSEUDO, ("te", "gzip")],
            [*PSEUDO, PSEUDO[0]],
            [TYPE, *PSEUDO],
            PSEUDO[1:],
            [("a", "b")],
        )
    ]
    + [hpack.Encoder().encode([*PSEUDO, TYPE]), b"\xbe" * 3, b"\x82\x87\x84\xbe", b"\x20", b"\xfe", b""]
)
streams = st.sampled_from((1, 1, 3, 3, 5, 7, 2, 0))
ends = st.sampled_from((0, END_STREAM, END_STREAM))
sizes = st.sampled_from((0, 3, 3, 200, 16384))


@st.composite
def client_frames(draw: st.DrawFn) -> bytes:
    """One frame, usually a valid one."""
    kind = draw(
        st.sampled_from((HEADERS,) * 6 + (DATA,) * 6 + (RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, PRIORITY, 99))
    )
    stream, flags = draw(streams), 0
    if kind == HEADERS:
        flags, payload = END_HEADERS | draw(ends), draw(blocks)
        if draw(st.integers(0, 5)) == 0:
            flags, payload = flags | HAS_PRIORITY, bytes(4) + b"\1" + payload
        if draw(st.integers(0, 7)) == 0:
            cut = len(payload) // 2
            rest = frame(CONTINUATION, END_HEADERS, draw(st.sampled_from((stream, stream, 9))), payload[cut:])
            return frame(HEADERS, flags & ~END_HEADERS, stream, payload[:cut]) + rest
    elif kind == DATA:
        flags, payload = draw(ends), bytes(draw(sizes))
    elif kind == SETTINGS:
        setting = draw(
            st.sampled_from((b"\0\4" + bytes(4), b"\0\4\0\1\0\0", b"\0\4\x80\0\0\0", b"\0\2\0\0\0\2", b"\0\1"))
        )
        stream, payload = draw(st.sampled_from((0, 0, 0, 1))), setting
    elif kind == PING:
        stream, payload = draw(st.sampled_from((0, 0, 1))), bytes(draw(st.sampled_from((8, 8, 8, 7))))
    elif kind in {WINDOW_UPDATE, RST_STREAM}:
        payload = draw(st.sampled_from((b"\0\0\0\x08", b"\0\0\0\x08", bytes(4), b"\x7f\xff\xff\xff", b"\0")))
    else:
        payload = bytes(4) + b"\1"
    if kind in {HEADERS, DATA} and len(payload) < 16000 and draw(st.integers(0, 5)) == 0:
        padding = draw(st.integers(0, 255))
        flags, payload = (
            flags | PADDED,
            bytes((padding,)) + payload + bytes(draw(st.sampled_from((padding, padding, 0)))),
        )
    return frame(kind, flags, stream, payload)


def has_error(sent: bytes) -> bool:
    """Whether a stream or the connection was ended."""
    while sent:
        size_and_kind, _, _ = HEAD.unpack_from(sent)
        if size_and_kind & 0xFF in {RST_STREAM, GOAWAY}:
            return True
        sent = sent[HEAD.size + (size_and_kind >> 8) :]
    return False


@given(st.lists(st.tuples(client_frames(), st.booleans()), max_size=30))
def test_requests_are_those_of_h2(frames: list[tuple[bytes, bool]]) -> None:
    codec, reference = Http2(), H2()
    codec.receive(PREFACE)
    codec.to_send(), reference.h2.data_to_send()
    for sent, is_answered in frames:
        try:
            expected = reference.requests(sent)
        except (h2.exceptions.ProtocolError, KeyError):
            expected = None
        try:
            requests = codec.receive(sent)
        except HttpError:
            requests = None
        is_refused = has_error(codec.to_send())
        if expected is None or has_error(reference.h2.data_to_send()):
            assert is_refused
            assert not requests
            return
        if requests is None and sent[KIND_AT] == RST_STREAM:  # of an idle stream: h2 ignores it (RFC 9113 section 6.4)
            return
        assert requests is not None
        assert not is_refused
        assert [(each.stream, each.method, each.target, each.content_type, each.body) for each in requests] == expected
        for request in requests if is_answered else ():
            codec.respond(request.stream, HTTPStatus.OK, (), b"")
            reference.h2.send_headers(request.stream, [(":status", "200")], end_stream=True)
        codec.to_send()
        reference.h2.data_to_send()


@dataclass(slots=True)
class Response:
    """What a client has received on a stream."""

    status: bytes = b""
    body: bytes = b""
    is_complete: bool = False


@dataclass(slots=True)
class Conversation:
    """A client of h2, which checks every frame, and the codec; each piece of bytes may arrive in two parts."""

    codec: Http2 = field(default_factory=Http2)
    client: h2.connection.H2Connection = field(default_factory=h2.connection.H2Connection)
    responses: dict[int, Response] = field(default_factory=dict)
    received: dict[int, bytes] = field(default_factory=dict)

    def exchange(self, part: int = 0) -> None:
        sent = self.client.data_to_send()
        for piece in (sent[:part], sent[part:]):
            for request in self.codec.receive(piece):
                self.received[request.stream] = request.body
        for event in self.client.receive_data(self.codec.to_send()):
            response = self.responses.get(getattr(event, "stream_id", None) or 0, Response())
            if isinstance(event, h2.events.ResponseReceived):
                response.status = dict(event.headers or ())[b":status"]
            elif isinstance(event, h2.events.DataReceived):
                response.body += event.data or b""
            elif isinstance(event, h2.events.StreamEnded):
                response.is_complete = True
            assert not isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated)

    def ask(self, body: bytes) -> None:
        stream = self.client.get_next_available_stream_id()
        self.responses[stream] = Response()
        self.client.send_headers(stream, [*PSEUDO, TYPE], end_stream=not body)
        if body:
            self.client.send_data(stream, body, end_stream=True)

    def reset(self, stream: int) -> None:
        self.client.reset_stream(stream)
        self.responses.pop(stream)
        self.received.pop(stream, None)


steps = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from((0, 1, 50, 16384))),
    st.tuples(st.just("ask"), st.sampled_from((0, 1, 50, 16384))),
    st.tuples(st.just("answer"), st.sampled_from((0, 1, 100, 16384, 16385, 65535))),
    st.tuples(st.just("answer"), st.sampled_from((0, 1, 100, 16384, 16385, 65535))),
    st.tuples(st.just("reset"), st.integers(0, 5)),
    st.tuples(st.just("window"), st.sampled_from((0, 1, 10, 20_000, 65535, 200_000))),
    st.tuples(st.just("table"), st.sampled_from((0, 100, 4096, 65536))),
    st.tuples(st.just("open"), st.integers(0, 5)),
    st.tuples(st.just("exchange"), st.integers(0, 2000)),
    st.tuples(st.just("exchange"), st.integers(0, 2000)),
)


@given(st.lists(steps, max_size=40))
def test_every_request_is_answered_within_the_windows(done: list[tuple[str, int]]) -> None:
    talk = Conversation()
    client = talk.client
    client.initiate_connection()
    talk.exchange()
    sent: dict[int, bytes] = {}
    for step, number in done:
        waiting = [stream for stream in talk.received if stream not in sent]
        if step == "ask" and len(talk.responses) < MAX_STREAMS and client.outbound_flow_control_window >= number:
            talk.ask(bytes(number))
        elif step == "answer" and waiting:
            sent[waiting[0]] = bytes((waiting[0] % 256,)) * number
            talk.codec.respond(waiting[0], HTTPStatus.OK, [TYPE], sent[waiting[0]])
        elif step == "reset" and (streams_left := [s for s, each in talk.responses.items() if not each.is_complete]):
            talk.reset(streams_left[number % len(streams_left)])
            talk.exchange()
        elif step == "window":
            client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: number})
            talk.exchange()  # h2 acknowledges values of later frames too
        elif step == "table":
            client.update_settings({h2.settings.SettingCodes.HEADER_TABLE_SIZE: number})
            talk.exchange()
        elif step == "open":
            client.increment_flow_control_window(10_000)
        else:
            talk.exchange(number)
    talk.exchange()
    client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20})
    client.increment_flow_control_window(64 << 20)
    for stream in talk.received.keys() - sent.keys():
        sent[stream] = b""
        talk.codec.respond(stream, HTTPStatus.OK, [TYPE], b"")
    for _ in range(3):
        talk.exchange()
    assert talk.received.keys() == talk.responses.keys()
    for stream, response in talk.responses.items():
        assert (response.status, response.body, response.is_complete) == (b"200", sent[stream], True)
    assert (talk.codec.held_bytes, talk.codec.is_blocked, talk.codec.is_incomplete) == (0, False, False)
