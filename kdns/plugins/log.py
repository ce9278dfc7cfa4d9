"""log [NAMES…] [FORMAT] { class CLASSES… }: one line for each query whose name and answer are of interest.

Several stanzas add up; the first rule that matches a query decides.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from kdns.corefile.address import all_zones
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.dns.names import Labels, is_below, labels_of
from kdns.dns.query import AA, AD, CD, PLAIN_PAYLOAD_BYTES, QR, RA, RD, TC
from kdns.dns.response import Response
from kdns.dns.types import NOERROR, NXDOMAIN, class_name, rcode_name, type_name
from kdns.net import bracketed
from kdns.plugins.chain import Plugin, Reply, Request, Sees, Serve
from kdns.plugins.directive import Directive, Repeat, Setup
from kdns.plugins.stanza import UNLIMITED, Option, configured, count

Class: TypeAlias = Literal["all", "success", "denial", "error"]
CLASSES: dict[str, Class] = {name: name for name in get_args(Class)}

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
    """A place in a format that a query fills: one of FIELDS, or /LABEL for metadata."""

    name: str


Format: TypeAlias = tuple[str | Field, ...]


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Queries for names in `zones` whose answer is in one of `classes` are written as `format` says."""

    zones: tuple[str, ...]
    format: Format
    classes: frozenset[Class] = frozenset()

    def includes(self, answer_class: Class) -> bool:
        """Whether answers of this class are logged; no class, or the class `all`, means every answer."""
        return not self.classes or "all" in self.classes or answer_class in self.classes


def compiled(text: str) -> Format:
    """The format in pieces: what is in braces and no known field stays text."""
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
    return replace(config, classes=config.classes | {_answer_class(token) for token in line.args})


def _answer_class(token: Token) -> Class:
    if token.text not in CLASSES:
        raise token.error(f"not one of {', '.join(CLASSES)}")
    return CLASSES[token.text]


OPTIONS = {"class": Option("class all|success|denial|error...", 1, UNLIMITED, _class)}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> LogConfig:
    """What one `log` stanza says; raises CorefileError. Without names it is about every name of the server block."""
    count(stanza, "log [NAMES...] [FORMAT]", 0, UNLIMITED)
    names, text = stanza.args, "{common}"
    if names and "{" in names[-1].text:
        if len(names) == 1:
            raise names[0].error("a format comes behind the names it is for; `log . FORMAT` is for all names")
        names, text = names[:-1], names[-1].text
    return configured(LogConfig(all_zones(names) or (".",), compiled(text)), stanza, OPTIONS)


class Log(Plugin):
    """Writes the line of a query when its response has been sent; the first rule whose zones fit decides."""

    sees = Sees.EVERY

    def __init__(self, configs: tuple[LogConfig, ...], setup: Setup) -> None:
        self._setup = setup
        self._rules: list[tuple[tuple[Labels, ...], LogConfig]] = [
            (tuple(labels_of(zone) for zone in config.zones), config) for config in configs
        ]

    def serve(self, request: Request, next: Serve) -> Reply | Awaitable[Reply]:  # noqa: A002 - as in Plugin
        """The next directive's reply: see `sent`."""
        return next(request)

    def sent(self, request: Request, response: Response, wire: bytes, took_s: float) -> None:
        """Write the line that the rules have for this query."""
        del response
        for zones, config in self._rules:
            if any(is_below(request.query.labels, zone) for zone in zones):
                if config.includes(answer_class(wire)):
                    fields = query_fields(request, wire, took_s)
                    self._setup.log("info", "query", line="".join(_text(piece, fields) for piece in config.format))
                return


def answer_class(wire: bytes) -> Class:
    """The class of a response as the `log` directive names them: denial for NXDOMAIN and NODATA."""
    rcode = wire[3] & 15
    if rcode == NXDOMAIN or (rcode == NOERROR and wire[6:8] == b"\x00\x00"):
        return "denial"
    return "success" if rcode == NOERROR else "error"


def query_fields(request: Request, wire: bytes, took_s: float) -> dict[str, str]:
    """All that a format may name, in CoreDNS's words."""
    query, (host, port) = request.query, request.client
    flags = int.from_bytes(wire[2:4], "big")
    return {
        "type": type_name(query.qtype),
        "name": query.spelled_name,
        "class": class_name(query.qclass),
        "proto": request.transport,
        "size": str(len(query.packet)),
        "remote": bracketed(host),
        "port": str(port),
        "local": request.local,
        ">id": str(int.from_bytes(query.packet[:2], "big")),
        ">opcode": str(query.flags >> 11 & 15),
        ">do": "true" if query.do else "false",
        ">bufsize": str(query.edns.payload_bytes if query.edns else PLAIN_PAYLOAD_BYTES),
        ">rflags": ",".join(name for name, bit in FLAGS if flags & bit),
        "rcode": rcode_name(flags & 15),
        "rsize": str(len(wire)),
        "duration": f"{took_s:.9f}s",
    } | {f"/{label}": value for label, value in request.metadata.items()}


def _text(piece: str | Field, fields: dict[str, str]) -> str:
    return piece if isinstance(piece, str) else fields.get(piece.name, "-")


def build(configs: tuple[LogConfig, ...], setup: Setup) -> Log:
    """The plugin for all stanzas of a server block."""
    return Log(configs, setup)


DIRECTIVE = Directive("log", parse, build, Repeat.ADD, options=OPTIONS)
