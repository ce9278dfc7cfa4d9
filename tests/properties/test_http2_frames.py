"""HTTP/2 of DNS over HTTPS: h2 as a client accepts each response, and any bytes are requests or an error."""

from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

import h2.connection
import h2.events
import h2.settings
from http2_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GREETING,
    HEADERS,
    POST,
    RST_STREAM,
    WINDOW_UPDATE,
    block,
    frame,
)
from hypothesis import given
from hypothesis import strategies as st

from kdns.dnsserver.doh.exchange import HttpError
from kdns.dnsserver.doh.http2 import MAX_STREAMS, Http2

TYPE = ("content-type", "application/dns-message")

blocks = st.sampled_from((block(*POST), block(*POST, TYPE), block(*POST[1:]), block(("a", "b")), b"\xbe" * 3, b"\x20"))
payloads = st.one_of(
    blocks, st.binary(max_size=12), st.sampled_from((bytes(4), b"\0\0\0\x08", b"\x7f\xff\xff\xff", bytes(16384)))
)
kinds = st.sampled_from((HEADERS, HEADERS, DATA, DATA, CONTINUATION, RST_STREAM, WINDOW_UPDATE)) | st.integers(0, 12)
flags = st.sampled_from((END_HEADERS, END_HEADERS | END_STREAM, END_STREAM, 0)) | st.integers(0, 255)
streams = st.sampled_from((1, 1, 1, 3, 3, 5, 2, 0, 1 << 31 | 1))
client_frames = st.builds(frame, kinds, flags, streams, payloads)


@given(st.lists(client_frames | st.binary(max_size=30), max_size=30), st.integers(1, 40))
def test_any_bytes_are_requests_or_an_error(frames: list[bytes], step: int) -> None:
    codec, sent = Http2(), GREETING + b"".join(frames)
    with suppress(HttpError):
        for start in range(0, len(sent), 1024 * step):
            for request in codec.receive(sent[start : start + 1024 * step]):
                codec.respond(request.stream, HTTPStatus.OK, [TYPE], bytes(100))
            assert codec.held_bytes >= 0
            codec.to_send()
    codec.close()
    assert codec.held_bytes == 0


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
        self.client.send_headers(stream, [*POST, TYPE], end_stream=not body)
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
    assert (talk.codec.held_bytes, talk.codec.blocked_bytes, talk.codec.is_incomplete) == (0, 0, False)
