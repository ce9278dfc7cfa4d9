"""log [NAMES…] [FORMAT] { class CLASSES… }: a line for each query whose name and answer match.

The rules of several stanzas are tried in order; the first whose names match applies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, TypeAlias, get_args

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, then
from kdns.answers.outcome import ResponseClass, response_class_of_wire
from kdns.answers.response import Response
from kdns.corefile.address import all_zones
from kdns.corefile.lines import Line, Stanza
from kdns.dns.names import ZoneSet
from kdns.dns.query import AA, AD, CD, MAX_MESSAGE_BYTES, PLAIN_PAYLOAD_BYTES, QR, RA, RD, TC
from kdns.dns.types import NOTIMP, SERVFAIL, class_name, rcode_name, type_name
from kdns.net import bracketed
from kdns.serverblocks.directive import Directive, Repeat, World
from kdns.serverblocks.stanza import Option, choice, configured
from kdns.values import evolve

Class: TypeAlias = Literal["all", "success", "denial", "error"]
CLASSES: dict[str, Class] = {name: name for name in get_args(Class)}
CLASS_OF: Final[dict[ResponseClass, Class]] = {
    ResponseClass.SUCCESS: "success",
    ResponseClass.REFERRAL: "success",
    ResponseClass.NODATA: "denial",
    ResponseClass.NXDOMAIN: "denial",
    ResponseClass.ERROR: "error",
}
"""NODATA without an SOA is a success, as in CoreDNS."""
TYPE_OF: Final = {
    ResponseClass.SUCCESS: "NOERROR",
    ResponseClass.REFERRAL: "DELEGATION",
    ResponseClass.NODATA: "NODATA",
    ResponseClass.NXDOMAIN: "NXDOMAIN",
    ResponseClass.ERROR: "OTHERERROR",
}
OWN_METADATA: Final = frozenset(("/log/class", "/log/type"))
"""Placeholders that look like metadata but do not need the directive `metadata`."""

FLAGS = (("qr", QR), ("aa", AA), ("tc", TC), ("rd", RD), ("ra", RA), ("ad", AD), ("cd", CD))

COMMON = (
    '{remote}:{port} - {>id} "{type} {class} {name} {proto} {size} {>do} {>bufsize}" '
    "{rcode} {>rflags} {rsize} {duration}"
)
SHORTCUTS = {
    "{common}": COMMON,
    "{combined}": f'{COMMON} "{{>opcode}}"',
}
QUERY_FIELDS = frozenset({"type", "name", "class", "proto", "size", "remote", "port", "local"})
HEADER_FIELDS = frozenset({">id", ">opcode", ">do", ">bufsize", ">rflags"})
ANSWER_FIELDS = frozenset({"rcode", "rsize", "duration"})
FIELDS = QUERY_FIELDS | HEADER_FIELDS | ANSWER_FIELDS


@dataclass(frozen=True, slots=True)
class Field:
    """A placeholder: one of FIELDS, or /LABEL for metadata."""

    name: str


Format: TypeAlias = tuple[str | Field, ...]


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Logs queries for names in `zones` whose answer is in one of `classes`."""

    zones: tuple[str, ...]
    format: Format
    classes: frozenset[Class] = frozenset()

    def includes(self, answer_class: Class) -> bool:
        """No class, or the class `all`, means every answer."""
        return not self.classes or "all" in self.classes or answer_class in self.classes


def compiled(text: str) -> Format:
    for shortcut, meaning in SHORTCUTS.items():
        text = text.replace(shortcut, meaning)
    pieces: list[str | Field] = []
    for index, piece in enumerate(re.split(r"\{([^{}]*)\}", text)):
        if index % 2 and (piece in FIELDS or piece.startswith("/")):
            pieces.append(Field(piece))
            continue
        plain = f"{{{piece}}}" if index % 2 else piece
        if pieces and isinstance(pieces[-1], str):
            pieces[-1] += plain
        elif plain:
            pieces.append(plain)
    return tuple(pieces)


def _class(config: LogConfig, line: Line) -> LogConfig:
    return replace(config, classes=config.classes | {CLASSES[choice(token, tuple(CLASSES))] for token in line.args})


OPTIONS = {"class": Option("class all|success|denial|error...", _class)}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> LogConfig:
    names, text = stanza.args, "{common}"
    if names and "{" in names[-1].text:
        if len(names) == 1:
            raise names[0].error("expected names before the format; write `log . FORMAT` for all names")
        names, text = names[:-1], names[-1].text
    return configured(LogConfig(all_zones(names) or (".",), compiled(text)), stanza, OPTIONS)


class Log(Plugin):
    """Writes a line when the response was sent."""

    sees = Sees.EVERY
    takes_notify = True

    def __init__(self, configs: tuple[LogConfig, ...], world: World) -> None:
        self._world = world
        self._rules = [(ZoneSet(config.zones), config) for config in configs]

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        reply = next(request)
        if isinstance(reply, Response) and reply.metadata is request.metadata:
            return reply
        return then(reply, partial(self._replied, request))

    def _replied(self, request: Request, reply: Reply) -> Reply:
        if reply is None:
            self._write(request, None, b"", max(0.0, self._world.now_s() - request.received_s))
            return None
        return evolve(reply, metadata=request.metadata)

    def sent(self, request: Request, response: Response, wire: bytes, took_s: float) -> None:
        self._write(evolve(request, metadata=response.metadata), response, wire, took_s)

    def _write(self, request: Request, response: Response | None, wire: bytes, took_s: float) -> None:
        for zones, config in self._rules:
            if request.query.labels in zones:
                if config.includes(class_and_type(response, wire)[0]):
                    facts = facts_of(config.format, request, response, wire, took_s)
                    self._world.print_line("info", "query", filled(config.format, facts), facts)
                return


def class_and_type(response: Response | None, wire: bytes) -> tuple[Class, str]:
    """The `class` of `log`, and CoreDNS's type; no response is an error."""
    if response is None:
        return "error", "OTHERERROR"
    rcode = rcode_of(response, wire)
    response_class = response_class_of_wire(wire, rcode)
    return CLASS_OF[response_class], "SERVERERROR" if rcode in {SERVFAIL, NOTIMP} else TYPE_OF[response_class]


def rcode_of(response: Response, wire: bytes) -> int:
    """With the upper bits, which are in the OPT (RFC 6891 §6.1.3)."""
    return response.rcode & ~15 | wire[3] & 15


def facts_of(
    format: Format,  # noqa: A002 - CoreDNS's word
    request: Request,
    response: Response | None,
    wire: bytes,
    took_s: float,
) -> dict[str, str]:
    """The facts that a format names, without > and /; `response` is None and `wire` b"" if nothing was sent."""
    named = dict.fromkeys(piece.name for piece in format if isinstance(piece, Field))
    fields = query_fields(request)
    if response is not None:
        flags = int.from_bytes(wire[2:4], "big")
        fields[">rflags"] = ",".join(name for name, bit in FLAGS if flags & bit)
        fields["rcode"] = rcode_name(rcode_of(response, wire))
        fields["rsize"] = str(len(wire))
    fields["duration"] = f"{took_s:.9f}".rstrip("0").removesuffix(".") + "s"
    fields |= {name: request.metadata.get(name[1:]) or "-" for name in named if name.startswith("/")}
    if not OWN_METADATA.isdisjoint(named):
        fields |= zip(("/log/class", "/log/type"), class_and_type(response, wire), strict=True)
    return {name.lstrip(">/"): fields.get(name, "-") for name in named}


def line_of(format: Format, request: Request, response: Response | None, wire: bytes, took_s: float) -> str:  # noqa: A002 - CoreDNS's word
    return filled(format, facts_of(format, request, response, wire, took_s))


def filled(format: Format, facts: Mapping[str, str]) -> str:  # noqa: A002 - CoreDNS's word
    return "".join(piece if isinstance(piece, str) else facts[piece.name.lstrip(">/")] for piece in format)


def query_fields(request: Request) -> dict[str, str]:
    """Facts about the query, by CoreDNS's names, and the response size if nothing was sent."""
    query, (host, port) = request.query, request.client
    bufsize = query.edns.payload_bytes if query.edns else PLAIN_PAYLOAD_BYTES
    return {
        "type": type_name(query.qtype),
        "name": query.name,
        "class": class_name(query.qclass),
        "proto": request.transport if request.transport == "udp" else "tcp",
        "size": str(len(query.packet)),
        "remote": bracketed(host),
        "port": str(port),
        "local": bracketed(request.local),
        ">id": str(int.from_bytes(query.packet[:2], "big")),
        ">opcode": str(query.flags >> 11 & 15),
        ">do": "true" if query.do else "false",
        ">bufsize": str(MAX_MESSAGE_BYTES if request.is_stream else bufsize),
        "rsize": "0",
    }


DIRECTIVE: Final = Directive("log [NAMES...] [FORMAT]", LogConfig, Log, OPTIONS, Repeat.ADD, parse=parse)
