"""dnstap SOCKET [full] [BUFFER] [QUEUE] { identity|version|extra TEXT; skipverify }: queries and responses, copied.

Several stanzas add up: each has its own reader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple, Protocol

from kdns import __version__
from kdns.corefile.address import port_number
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.dnsserver.answers.response import Response
from kdns.dnsserver.chain import Forwarded, Plugin, Reply, Request, Sees, Serve, then
from kdns.dnsserver.directive import Answers, Clock, Directive, Metrics, Peers, Repeat
from kdns.dnsserver.frame_streams import FrameSpec
from kdns.dnsserver.stanza import Option, configured, count, integer, sets, text
from kdns.net import HostPort, split_host_port
from kdns.plugins.dnstap.message import (
    CLIENT_QUERY,
    CLIENT_RESPONSE,
    FORWARDER_QUERY,
    FORWARDER_RESPONSE,
    Tap,
    payload,
)
from kdns.plugins.log import Format, compiled, line_of

USAGE: Final = "dnstap SOCKET [full] [BUFFER] [QUEUE]"
DEFAULT_VERSION: Final = f"kdns-{__version__}"
MAX_BUFFER: Final = 1024
"""MiB."""
MAX_QUEUE: Final = 4096
QUEUE: Final = 10_000
"""The unit of QUEUE, in messages."""


@dataclass(frozen=True, slots=True)
class DnstapConfig:
    """One reader. `full`: with the messages' bytes; an empty `identity` is the machine's name."""

    frames: FrameSpec
    full: bool = False
    identity: str = ""
    version: str = DEFAULT_VERSION
    extra: Format = ()


class Reader(NamedTuple):
    """The receiver of the copies and their contents."""

    put: Callable[[bytes], None]
    full: bool
    identity: bytes
    version: bytes
    extra: Format


class Needs(Answers, Clock, Metrics, Peers, Protocol):
    """The capabilities that the directive uses."""


class Dnstap(Plugin):
    """Copies each query when it comes, each response when it is sent, and what `forward` asks its upstreams."""

    sees = Sees.EVERY

    def __init__(self, readers: Iterable[Reader], clock: Clock) -> None:
        self._readers = tuple(readers)
        self._clock = clock
        self._has_extra = any(reader.extra for reader in self._readers)

    def serve(self, request: Request, next: Serve) -> Reply | Awaitable[Reply]:  # noqa: A002 - as in Plugin
        """Returns the next directive's reply."""
        tap = Tap(CLIENT_QUERY, request.transport, request.client, self._unix_s(request.received_s))
        self._copy(request, tap._replace(query=request.query.packet))
        reply = next(request)
        return then(reply, partial(_with_metadata, request)) if self._has_extra else reply

    def sent(self, request: Request, response: Response, wire: bytes, took_s: float) -> None:
        """Copies a response."""
        query_s = self._unix_s(request.received_s)
        tap = Tap(
            CLIENT_RESPONSE,
            request.transport,
            request.client,
            query_s,
            response_s=query_s + took_s,
            response=wire,
        )
        self._copy(request._replace(metadata=response.metadata), tap)

    def forwarded(self, request: Request, exchange: Forwarded) -> None:
        """Copies an exchange with an upstream."""
        started_s = self._unix_s(exchange.started_s)
        tap = Tap(FORWARDER_QUERY, exchange.transport, request.client, started_s, exchange.upstream)
        self._copy(request, tap._replace(query=exchange.query))
        if exchange.response:
            ended_s = self._unix_s(exchange.ended_s)
            ended = tap._replace(kind=FORWARDER_RESPONSE, response_s=ended_s, response=exchange.response)
            self._copy(request, ended)

    def _unix_s(self, loop_s: float) -> float:
        """Returns a time of the event loop's clock as Unix time."""
        return self._clock.unix_s() - (self._clock.now_s() - loop_s)

    def _copy(self, request: Request, tap: Tap) -> None:
        for reader in self._readers:
            extra = line_of(reader.extra, request, None, b"", 0.0).encode() if reader.extra else b""
            copied = tap if reader.full else tap._replace(query=None, response=None)
            reader.put(payload(copied, reader.identity, reader.version, extra))


def _with_metadata(request: Request, reply: Reply) -> Reply:
    return reply and reply._replace(metadata=request.metadata)


def _frames(token: Token) -> FrameSpec:
    """Returns the endpoint as a URL, or as the path of a socket."""
    scheme, separator, rest = token.text.partition("://")
    if not separator:
        scheme, rest = "unix", token.text
    if scheme == "unix":
        if not rest:
            raise token.error("expected the path of a socket after unix://")
        return FrameSpec("unix", path=rest)
    parts = split_host_port(rest)
    if scheme not in {"tcp", "tls"} or not parts or not parts[0]:
        raise token.expected("tcp://HOST:PORT, tls://HOST:PORT, unix://PATH or PATH")
    address = HostPort(parts[0], port_number(token, parts[1]))
    return FrameSpec("tls" if scheme == "tls" else "tcp", address=address)


def _skipverify(config: DnstapConfig, line: Line) -> DnstapConfig:
    if config.frames.scheme != "tls":
        raise line.error("`skipverify` is allowed with tls:// only")
    return replace(config, frames=replace(config.frames, skip_verify=True))


OPTIONS = {
    "identity": Option("identity IDENTITY", sets("identity", text)),
    "version": Option("version VERSION", sets("version", text)),
    "extra": Option("extra EXTRA", sets("extra", lambda word: compiled(word.text))),
    "skipverify": Option("skipverify", _skipverify),
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> DnstapConfig:
    """Returns the configuration of a `dnstap` stanza; raises CorefileError."""
    count(stanza, USAGE)
    socket, *rest = stanza.args
    config = DnstapConfig(_frames(socket))
    if rest and rest[0].text == "full":
        config = replace(config, full=True)
        rest = rest[1:]
    if rest:
        if not config.full or len(rest) > 2:
            raise rest[0].error(f"one argument too many; expected `{USAGE}`, with BUFFER and QUEUE after full")
        frames = replace(config.frames, buffer_bytes=integer(rest[0], 1, MAX_BUFFER) << 20)
        if len(rest) == 2:
            frames = replace(frames, queued=integer(rest[1], 1, MAX_QUEUE) * QUEUE)
        config = replace(config, frames=frames)
    return configured(config, stanza, OPTIONS)


def build(configs: tuple[DnstapConfig, ...], setup: Needs) -> Dnstap:
    """Returns the plugin for all stanzas of a server block."""
    lost = setup.counters(
        "kdns_dnstap_lost_messages", "Copies of messages that the collector did not read in time.", ("endpoint",)
    )
    readers = [
        Reader(
            setup.frames(config.frames, lost.tally(str(config.frames))),
            config.full,
            (config.identity or setup.hostname).encode(),
            config.version.encode(),
            config.extra,
        )
        for config in configs
    ]
    return Dnstap(readers, setup)


DIRECTIVE = Directive("dnstap", parse, build, Repeat.ADD, options=OPTIONS)
