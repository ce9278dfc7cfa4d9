"""DNS over HTTPS (RFC 8484) on one connection: HTTP/2 if the server supports it, otherwise HTTP/1.1."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import h11

from kdns import __version__
from kdns.dns.query import MAX_MESSAGE_BYTES
from kdns.net import bracketed, join_host_port
from kdns.upstream.framing import PIPELINED, Arrived, Key
from kdns.upstream.upstream import UpstreamError, UpstreamSpec

MEDIA_TYPE: Final = "application/dns-message"
PATH: Final = "/dns-query"
HTTPS_PORT: Final = 443
ID: Final = b"\x00\x00"
"""The id of every query, so that HTTP caches see equal queries as equal requests (RFC 8484 §4.1)."""


@dataclass(slots=True)
class Incoming:
    """An HTTP response that is being received."""

    status: int = 0
    media_type: str = ""
    body: bytearray = field(default_factory=bytearray)

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        for name, value in headers:
            if name.lower() == b"content-type":
                self.media_type = value.decode("latin-1").partition(";")[0].strip().lower()

    def add(self, data: bytes) -> None:
        self.body += data
        if len(self.body) > MAX_MESSAGE_BYTES:
            raise UpstreamError(f"a response of more than {MAX_MESSAGE_BYTES} bytes")

    def outcome(self) -> bytes | UpstreamError:
        if self.status != HTTPStatus.OK:
            try:
                phrase = f" {HTTPStatus(self.status).phrase}"
            except ValueError:
                phrase = ""
            return UpstreamError(f"the response of HTTP is {self.status}{phrase}")
        if self.media_type != MEDIA_TYPE:
            return UpstreamError(f"the response is {self.media_type[:100] or 'of no type'}, not {MEDIA_TYPE}")
        return bytes(self.body)


def framing_of(protocol: str | None, spec: UpstreamSpec) -> Http1 | Http2:
    return Http2(spec) if protocol == "h2" else Http1(spec)


def authority_of(spec: UpstreamSpec) -> str:
    host, port = spec.tls.server_name.rstrip(".") or spec.address.host, spec.address.port
    return bracketed(host) if port == HTTPS_PORT else join_host_port(host, port)


def request_of(method: str, message: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
    """Path, headers and body; GET has the message in the path (RFC 8484 §4.1.1)."""
    headers = [("accept", MEDIA_TYPE), ("user-agent", f"kdns/{__version__}")]
    if method == "GET":
        return f"{PATH}?dns={urlsafe_b64encode(message).rstrip(b'=').decode()}", headers, b""
    return PATH, [*headers, ("content-type", MEDIA_TYPE), ("content-length", str(len(message)))], message


class Http1:
    """HTTP/1.1 (RFC 9112): one request at a time."""

    def __init__(self, spec: UpstreamSpec) -> None:
        self.max_pending = 1
        self._method, self._authority = spec.doh_method, authority_of(spec)
        self._http = h11.Connection(h11.CLIENT)
        self._incoming = Incoming()
        self._number = 0

    def query(self, body: bytes, taken: Container[Key]) -> tuple[Key, bytes]:
        del taken
        target, headers, content = request_of(self._method, ID + body)
        request = h11.Request(method=self._method, target=target, headers=[("host", self._authority), *headers])
        events = (request, *([h11.Data(data=content)] if content else []), h11.EndOfMessage())
        self._number += 1
        self._incoming = Incoming()
        return self._number, b"".join(self._http.send(event) or b"" for event in events)

    def received(self, data: bytes) -> list[Arrived]:
        arrived: list[Arrived] = []
        try:
            self._http.receive_data(data)
            while not isinstance(event := self._http.next_event(), type):
                if isinstance(event, h11.Response):
                    self._incoming.head(event.status_code, list(event.headers))
                elif isinstance(event, h11.Data):
                    self._incoming.add(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    arrived.append((self._number, self._incoming.outcome()))
                    if self._http.our_state is h11.MUST_CLOSE or self._http.their_state is not h11.DONE:
                        self.max_pending = 0
                        break
                    self._http.start_next_cycle()
        except h11.ProtocolError as error:
            raise UpstreamError(f"the upstream does not speak HTTP: {error}") from error
        return arrived

    def unsent(self) -> bytes:
        return b""


class Http2:
    """HTTP/2 (RFC 9113): a stream for each query."""

    def __init__(self, spec: UpstreamSpec) -> None:
        self.max_pending = PIPELINED
        self._method, self._authority = spec.doh_method, authority_of(spec)
        self._http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
        self._http.local_settings = h2.settings.Settings(initial_values={h2.settings.SettingCodes.ENABLE_PUSH: 0})
        self._streams: dict[int, Incoming] = {}
        self._http.initiate_connection()

    def query(self, body: bytes, taken: Container[Key]) -> tuple[Key, bytes]:
        del taken
        http = self._http
        path, headers, content = request_of(self._method, ID + body)
        pseudo = [
            (":method", self._method),
            (":scheme", "https"),
            (":authority", self._authority),
            (":path", path),
        ]
        try:
            number = http.get_next_available_stream_id()
            http.send_headers(number, [*pseudo, *headers], end_stream=not content)
            if content:
                http.send_data(number, content, end_stream=True)
        except h2.exceptions.ProtocolError as error:
            self.max_pending = 0
            raise UpstreamError(f"HTTP/2 failed: {error}") from error
        self._streams[number] = Incoming()
        return number, http.data_to_send()

    def received(self, data: bytes) -> list[Arrived]:
        try:
            return self._arrived(self._http.receive_data(data))
        except (h2.exceptions.ProtocolError, ValueError) as error:  # ValueError: h2 does not check :status
            raise UpstreamError(f"the upstream does not speak HTTP/2: {error}") from error

    def _arrived(self, events: Iterable[h2.events.Event]) -> list[Arrived]:
        arrived: list[Arrived] = []
        for event in events:
            match event:
                case h2.events.ResponseReceived(stream_id=number, headers=headers) if number in self._streams:
                    self._streams[number].head(int(dict(headers or ())[b":status"]), list(headers or ()))
                case h2.events.DataReceived(stream_id=number, data=body) if number in self._streams:
                    self._streams[number].add(body or b"")
                    self._http.acknowledge_received_data(event.flow_controlled_length or 0, number)
                case h2.events.StreamEnded(stream_id=number) if number in self._streams:
                    arrived.append((number, self._streams.pop(number).outcome()))
                case h2.events.StreamReset(stream_id=number) if number in self._streams:
                    del self._streams[number]
                    arrived.append((number, UpstreamError("the upstream ended the request")))
                case h2.events.RemoteSettingsChanged() if self.max_pending:
                    self.max_pending = min(PIPELINED, self._http.remote_settings.max_concurrent_streams)
                case h2.events.ConnectionTerminated():
                    self.max_pending = 0
        return arrived

    def unsent(self) -> bytes:
        return self._http.data_to_send()
