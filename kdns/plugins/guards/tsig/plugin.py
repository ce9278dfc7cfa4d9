"""tsig [ZONES...] { secret NAME KEY | secrets FILE | require … | require_opcode … }: signed queries and responses.

RFC 8945. A signature identifies the client: `transfer` behind this directive then serves zones to signed queries only.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Final

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, then
from kdns.answers.response import MessageSigner, Response
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line
from kdns.dns.names import ZoneSet, folded, labels_of, text_of
from kdns.dns.query import NOTIFY, OPCODE
from kdns.dns.types import FORMERR, NOTAUTH, REFUSED, type_number
from kdns.errors import CorefileError, first_of
from kdns.serverblocks.directive import Directive, World
from kdns.serverblocks.stanza import Option, adds, mnemonic, path_of, sets_all
from kdns.values import evolve

NAME: Final = "tsig"
OPCODES: Final = {"QUERY": 0, "IQUERY": 0x0800, "STATUS": 0x1000, "NOTIFY": NOTIFY, "UPDATE": 0x2800}
"""Opcodes at their position in the flags. kdns answers QUERY and NOTIFY; others are NOTIMP before any directive."""
ALL: Final = "all"
NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class TsigConfig:
    """The keys, and the types and opcodes of queries that must be signed; None for all."""

    zones: tuple[str, ...]
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    secret_files: tuple[str, ...] = ()
    qtypes: frozenset[int] | None = frozenset()
    opcodes: frozenset[int] | None = frozenset()

    def requires(self, qtype: int, opcode: int) -> bool:
        of_type = self.qtypes is None or (not opcode and qtype in self.qtypes)
        return of_type or self.opcodes is None or opcode in self.opcodes


def key_name(token: Token) -> str:
    """Normalized for look-ups; CorefileError for a word that is not a name."""
    if not token.text:
        raise token.expected("the name of a key")
    try:
        return folded(text_of(labels_of(token.text)))
    except ValueError as error:
        raise token.error(f"expected the name of a key: {error}") from error


def _secret_bytes(token: Token) -> bytes:
    try:
        return b64decode(token.text, validate=True)
    except ValueError:
        raise Token(token.path, token.line, "").error("the secret is not valid Base64") from None


def _secret(config: TsigConfig, line: Line) -> TsigConfig:
    name, secret = line.args
    return replace(config, secrets={**config.secrets, key_name(name): _secret_bytes(secret)})


def _numbers(number: Callable[[str], int], wanted: str, args: Sequence[Token]) -> frozenset[int] | None:
    numbers = set()
    for token in args:
        if token.text.lower() in {ALL, NONE}:
            if len(args) > 1:
                raise token.error(f"`{token.text}` cannot be combined with other arguments")
            return None if token.text.lower() == ALL else frozenset()
        numbers.add(mnemonic(token, number, f"{wanted}, all or none", folds=True))
    return frozenset(numbers)


_qtypes = partial(_numbers, type_number, "a record type, such as AXFR")
_opcodes = partial(_numbers, OPCODES.__getitem__, f"one of {', '.join(OPCODES)}")

OPTIONS = {
    "secret": Option("secret NAME KEY", _secret),
    "secrets": Option("secrets FILE", adds("secret_files", path_of)),
    "require": Option("require all|none|QTYPE...", sets_all("qtypes", _qtypes)),
    "require_opcode": Option("require_opcode all|none|OPCODE...", sets_all("opcodes", _opcodes)),
}


_KEY = re.compile(r'\s*key\s+"?([^\s"{]+)"?\s*\{([^{}]*)\}\s*;?', re.DOTALL)
_CLAUSE = re.compile(r'\s*(algorithm|secret)\s+"?([^\s";]+)"?\s*;', re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL)


def parse_secrets(text: str, path: str) -> dict[str, bytes]:
    """The keys of a file in BIND's format: `key "NAME" { algorithm …; secret "…"; };`.

    CorefileError for other text; after a mistake it continues at the next key.
    """
    text = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
    secrets: dict[str, bytes] = {}
    mistakes: list[CorefileError] = []
    position = 0
    while text[position:].strip():
        match = _KEY.match(text, position)
        line = text.count("\n", 0, position + len(text[position:]) - len(text[position:].lstrip())) + 1
        clauses = dict(_CLAUSE.findall(match[2])) if match else {}
        try:
            if match is None or "secret" not in clauses or _CLAUSE.sub("", match[2]).strip():
                wanted = 'expected a key such as: key "NAME" { algorithm hmac-sha256; secret "…"; };'
                raise Token(path, line, "").error(wanted)
            secrets[key_name(Token(path, line, match[1]))] = _secret_bytes(Token(path, line, clauses["secret"]))
        except CorefileError as error:
            mistakes.append(error)
        following = match or _KEY.search(text, position)
        position = match.end() if match else following.start() if following else len(text)
    if mistakes:
        raise first_of(mistakes)
    return secrets


class Tsigs(Plugin):
    """Verifies signed queries, refuses queries without a required signature, and signs the responses.

    A signed query always misses the table, because its signature is an additional record.
    """

    sees = Sees.PACKET
    takes_notify = True

    def __init__(self, config: TsigConfig, world: World) -> None:
        self._config = config
        self._world = world
        self._zones = ZoneSet(config.zones)
        self.secrets: dict[str, bytes] = dict(config.secrets)
        import_module("kdns.plugins.guards.tsig.signature")  # before the first query
        if config.secret_files:
            world.prepare(self._read)

    async def _read(self) -> None:
        for path in map(self._world.path, self._config.secret_files):
            self.secrets |= await self._world.in_thread(partial(self._secrets_of, path))

    def _secrets_of(self, path: str) -> dict[str, bytes]:
        return parse_secrets(self._world.read_text(path), path)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        query = request.query
        if query.labels not in self._zones:
            return next(request)
        return self._unsigned(request, next) if query.is_plain else self._verified(request, next)

    def _unsigned(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        is_refused = self._config.requires(request.query.qtype, request.query.flags & OPCODE)
        return Response(REFUSED, plugin=NAME) if is_refused else next(request)

    def _verified(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        from kdns.plugins.guards.tsig.signature import tsig_of, unsigned, verified  # noqa: PLC0415 - imported at the start

        query = request.query
        try:
            tsig = tsig_of(query.packet)
        except ValueError:
            return Response(FORMERR, plugin=NAME)
        if tsig is None:
            return self._unsigned(request, next)
        error, signer = verified(query.packet, tsig, self.secrets, self._world.unix_s)
        if error:
            return Response(NOTAUTH, plugin=NAME, signer=signer)
        bare = evolve(query, packet=unsigned(query.packet, tsig))
        return then(next(evolve(request, query=bare)), partial(_signed, signer=signer))


def _signed(reply: Reply, signer: MessageSigner) -> Reply:
    return reply and evolve(reply, signer=signer)


DIRECTIVE: Final = Directive("tsig [ZONES...]", TsigConfig, Tsigs, OPTIONS)
