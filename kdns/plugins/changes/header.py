"""header { query|response set|clear FLAGS… }: changes flags of the query for later directives, and of the response."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Final

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, then
from kdns.corefile.lines import Line, Stanza
from kdns.dns.query import AA, RA, RD
from kdns.serverblocks.directive import Directive, Repeat, World
from kdns.serverblocks.stanza import Option, choice, configured, count, folded
from kdns.values import evolve

FLAGS = {"aa": AA, "ra": RA, "rd": RD}
USAGE = "set|clear aa|ra|rd..."


@dataclass(frozen=True, slots=True)
class Flags:
    """Bits of the header to set and to clear."""

    set: int = 0
    clear: int = 0

    def then(self, later: Flags) -> Flags:
        return Flags(self.set & ~later.clear | later.set, self.clear & ~later.set | later.clear)

    def of(self, flags: int) -> int:
        return flags & ~self.clear | self.set


@dataclass(frozen=True, slots=True)
class HeaderConfig:
    """The changes of queries and of responses."""

    query: Flags = Flags()
    response: Flags = Flags()


class Header(Plugin):
    """RD of a response is that of the query after `query` rules, as in CoreDNS, unless a `response` rule changes it."""

    sees = Sees.PACKET

    def __init__(self, configs: tuple[HeaderConfig, ...], _world: World) -> None:
        self._query = query = reduce(Flags.then, (config.query for config in configs))
        response = reduce(Flags.then, (config.response for config in configs))
        self._response = Flags(query.set & RD, query.clear & RD).then(response)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        query = request.query
        flags = self._query.of(query.flags)
        if flags != query.flags:
            request = evolve(request, query=query.changed(flags=flags))
        return then(next(request), self._changed)

    def _changed(self, reply: Reply) -> Reply:
        if reply is None:
            return None
        flags = Flags(*reply.header).then(self._response)
        return evolve(reply, header=(flags.set, flags.clear))


def _rule(config: HeaderConfig, line: Line) -> HeaderConfig:
    action, *names = (replace(word, text=word.text.lower()) for word in line.args)
    bits = reduce(or_, (FLAGS[choice(name, tuple(FLAGS))] for name in names))
    flags = Flags(set=bits) if choice(action, ("set", "clear")) == "set" else Flags(clear=bits)
    if line.name == "query":
        return replace(config, query=config.query.then(flags))
    return replace(config, response=config.response.then(flags))


OPTIONS = {name: Option(f"{name} {USAGE}", _rule) for name in ("query", "response")}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> HeaderConfig:
    count(stanza, f"header {{ query|response {USAGE} }}", (0, 0))
    if not stanza.block:
        raise stanza.error(f"a rule is missing; expected `header {{ query|response {USAGE} }}`")
    return configured(HeaderConfig(), folded(stanza), OPTIONS)


DIRECTIVE: Final = Directive(
    f"header {{ query|response {USAGE} }}", HeaderConfig, Header, OPTIONS, Repeat.ADD, parse=parse
)
