"""dnstap [listen] SOCKET [full] [BUFFER] [QUEUE] { identity|version|extra TEXT; … }: copies queries and responses.

Several stanzas add up: each has its own reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from kdns import __version__
from kdns.answers.chain import Forwarded, Plugin, Reply, Request, Sees, Serve, ServeResult, then
from kdns.answers.response import Response
from kdns.corefile.address import port_number
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.errors import CorefileError
from kdns.net import HostPort, split_host_port
from kdns.plugins.observers.dnstap.message import (
    CLIENT_QUERY,
    CLIENT_RESPONSE,
    FORWARDER_QUERY,
    FORWARDER_RESPONSE,
    Tap,
    payload,
)
from kdns.plugins.observers.log import Format, compiled, line_of
from kdns.serverblocks.directive import Directive, FrameSpec, Repeat, World
from kdns.serverblocks.listener_options import ClientAuth, TlsConfig
from kdns.serverblocks.stanza import Option, configured, count, integer, sets, text
from kdns.values import evolve

USAGE: Final = "dnstap SOCKET [full] [BUFFER] [QUEUE]"
LISTEN: Final = "listen"
LISTEN_USAGE: Final = "dnstap listen SOCKET [full] [BUFFER] [QUEUE]"
DEFAULT_VERSION: Final = f"kdns-{__version__}"
MAX_BUFFER: Final = 1024
"""MiB."""
MAX_QUEUE: Final = 4096
QUEUE: Final = 10_000
"""The unit of QUEUE, in messages."""


@dataclass(frozen=True, slots=True)
class DnstapConfig:
    """One reader. `full`: with the messages' bytes; `identity` defaults to the host name; `mistakes` have no effect."""

    frames: FrameSpec
    full: bool = False
    identity: str = ""
    version: str = DEFAULT_VERSION
    extra: Format = ()
    mistakes: tuple[CorefileError, ...] = ()


class Reader(NamedTuple):
    """A destination, and what its copies contain."""

    put: Callable[[bytes], None]
    full: bool
    identity: bytes
    version: bytes
    extra: Format


class Dnstap(Plugin):
    """Copies queries when received, responses when sent, and exchanges of `forward` with upstreams."""

    sees = Sees.EVERY

    def __init__(self, readers: Iterable[Reader], world: World) -> None:
        self._readers = tuple(readers)
        self._world = world
        self._has_extra = any(reader.extra for reader in self._readers)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        tap = Tap(CLIENT_QUERY, request.transport, request.client, self._unix_s(request.received_s))
        self._copy(request, tap._replace(query=request.query.packet))
        reply = next(request)
        return then(reply, partial(_with_metadata, request)) if self._has_extra else reply

    def sent(self, request: Request, response: Response, wire: bytes, took_s: float) -> None:
        query_s = self._unix_s(request.received_s)
        tap = Tap(
            CLIENT_RESPONSE,
            request.transport,
            request.client,
            query_s,
            response_s=query_s + took_s,
            response=wire,
        )
        self._copy(evolve(request, metadata=response.metadata), tap)

    def forwarded(self, request: Request, exchange: Forwarded) -> None:
        started_s = self._unix_s(exchange.started_s)
        tap = Tap(FORWARDER_QUERY, exchange.transport, request.client, started_s, exchange.upstream)
        self._copy(request, tap._replace(query=exchange.query))
        if exchange.response:
            ended_s = self._unix_s(exchange.ended_s)
            ended = tap._replace(kind=FORWARDER_RESPONSE, response_s=ended_s, response=exchange.response)
            self._copy(request, ended)

    def _unix_s(self, loop_s: float) -> float:
        return self._world.unix_s() - (self._world.now_s() - loop_s)

    def _copy(self, request: Request, tap: Tap) -> None:
        for reader in self._readers:
            extra = line_of(reader.extra, request, None, b"", 0.0).encode() if reader.extra else b""
            copied = tap if reader.full else tap._replace(query=None, response=None)
            reader.put(payload(copied, reader.identity, reader.version, extra))


def _with_metadata(request: Request, reply: Reply) -> Reply:
    return reply and evolve(reply, metadata=request.metadata)


def _frames(token: Token, *, listens: bool) -> FrameSpec:
    scheme, separator, destination = token.text.partition("://")
    if not separator:
        scheme, destination = "unix", token.text
    if scheme == "unix":
        if not destination:
            raise token.error("expected the path of a socket after unix://")
        return FrameSpec("unix", path=destination, listens=listens)
    parts = split_host_port(destination)
    if scheme not in {"tcp", "tls"} or not parts or not (parts[0] or listens):
        raise token.expected("tcp://HOST:PORT, tls://HOST:PORT, unix://PATH or PATH")
    address = HostPort(parts[0], port_number(token, parts[1]))
    return FrameSpec("tls" if scheme == "tls" else "tcp", address=address, listens=listens)


def _skipverify(config: DnstapConfig, line: Line) -> DnstapConfig:
    if config.frames.scheme != "tls" and not config.frames.listens:
        raise line.error("`skipverify` is allowed with tls:// only")
    return _secured(replace(config, frames=replace(config.frames, skip_verify=True)), line)


def _tls(config: DnstapConfig, line: Line) -> DnstapConfig:
    if not config.frames.listens:
        raise line.error(f"`tls` is allowed with `{LISTEN_USAGE}` only")
    cert, key, *ca = (token.text for token in line.args)
    tls = TlsConfig(cert, key, ca[0] if ca else "", at=line.words[0])
    return _secured(replace(config, frames=replace(config.frames, tls=tls)), line)


def _secured(config: DnstapConfig, line: Line) -> DnstapConfig:
    """Notes a TLS option without effect, which is no error, as in CoreDNS."""
    if config.frames.scheme == "tls":
        return config
    mistake = line.error(f"`{line.name}` has no effect with {config.frames.scheme}://; tls:// encrypts")
    return replace(config, mistakes=(*config.mistakes, mistake))


OPTIONS = {
    "identity": Option("identity IDENTITY", sets("identity", text)),
    "version": Option("version VERSION", sets("version", text)),
    "extra": Option("extra EXTRA", sets("extra", lambda word: compiled(word.text))),
    "tls": Option("tls CERT KEY [CA]", _tls),
    "skipverify": Option("skipverify", _skipverify),
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> DnstapConfig:
    listens = bool(stanza.args) and stanza.args[0].text == LISTEN
    usage = LISTEN_USAGE if listens else USAGE
    count(stanza, usage)
    socket, *sizes = stanza.args[listens:]
    config = DnstapConfig(_frames(socket, listens=listens))
    if sizes and sizes[0].text == "full":
        config = replace(config, full=True)
        sizes = sizes[1:]
    if sizes:
        if not config.full or len(sizes) > 2:
            raise sizes[0].error(f"one argument too many; expected `{usage}`, with BUFFER and QUEUE after full")
        frames = replace(config.frames, buffer_bytes=integer(sizes[0], 1, MAX_BUFFER) << 20)
        if len(sizes) == 2:
            frames = replace(frames, queued=integer(sizes[1], 1, MAX_QUEUE) * QUEUE)
        config = replace(config, frames=frames)
    config = configured(config, stanza, OPTIONS)
    if listens and config.frames.scheme == "tls" and config.frames.tls is None:
        raise socket.error("tls:// needs the certificate of this end in the block: `tls CERT KEY [CA]`")
    return config


def build(configs: tuple[DnstapConfig, ...], world: World) -> Dnstap:
    lost = world.counters(
        "kdns_dnstap_lost_messages", "Copies of messages that the collector did not read in time.", ("endpoint",)
    )
    readers = [
        Reader(
            world.frames(_placed(config.frames, world), lost.tally(str(config.frames))),
            config.full,
            (config.identity or world.hostname).encode(),
            config.version.encode(),
            config.extra,
        )
        for config in configs
    ]
    return Dnstap(readers, world)


def _placed(frames: FrameSpec, files: World) -> FrameSpec:
    """Makes paths relative to `root`. With a CA, collectors need a certificate; with `skipverify` they may have one."""
    tls = frames.tls
    if tls is None:
        return frames
    verified = ClientAuth.VERIFY_IF_GIVEN if frames.skip_verify else ClientAuth.REQUIRE_AND_VERIFY
    placed = replace(
        tls,
        cert=files.path(tls.cert),
        key=files.path(tls.key),
        ca=tls.ca and files.path(tls.ca),
        client_auth=verified if tls.ca else ClientAuth.NOCERT,
    )
    return replace(frames, tls=placed)


DIRECTIVE: Final = Directive(
    USAGE,
    DnstapConfig,
    build,
    OPTIONS,
    Repeat.ADD,
    parse=parse,
    example="/socket",
    warnings=lambda config: config.mistakes,
    warned="option ignored",
)
