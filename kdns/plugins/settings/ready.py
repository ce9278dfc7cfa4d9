"""ready [ADDRESS] { monitor until-ready|continuously }: /ready answers 200 when names can be answered, else 503."""

from __future__ import annotations

from kdns.corefile.address import host_port
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Stanza
from kdns.net import HostPort
from kdns.serverblocks.block_options import BlockOptions, ReadyPage
from kdns.serverblocks.directive import Directive
from kdns.serverblocks.stanza import Option, choice, configured, count, sets

MONITORS = ("until-ready", "continuously")
DEFAULT_ADDRESS = HostPort("", 8181)


def _is_continuous(token: Token) -> bool:
    return choice(token, MONITORS) == "continuously"


OPTIONS = {"monitor": Option("monitor until-ready|continuously", sets("continuously", _is_continuous))}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> ReadyPage:
    """Returns the configuration of a `ready` stanza; raises CorefileError."""
    count(stanza, "ready [ADDRESS]")
    address = host_port(stanza.args[0]) if stanza.args else DEFAULT_ADDRESS
    return configured(ReadyPage(address), stanza, OPTIONS)


DIRECTIVE = Directive("ready", parse, sets_up=BlockOptions.with_page, options=OPTIONS)
