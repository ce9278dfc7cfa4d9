"""bind ADDRESS|INTERFACE… { except ADDRESS|INTERFACE… }: where a server block listens instead of everywhere.

Interfaces are only looked up by the listeners: a name here need not exist. Several stanzas add up.
"""

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import ip_address

from kdns.corefile.lexer import Token
from kdns.corefile.lines import Stanza
from kdns.serverblocks.block_options import BindConfig, BlockOptions
from kdns.serverblocks.directive import Directive, Repeat
from kdns.serverblocks.stanza import Option, adds, configured, count

MAX_INTERFACE_CHARS = 15


def _hosts(tokens: tuple[Token, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_host(token) for token in tokens))


def _host(token: Token) -> str:
    try:
        return str(ip_address(token.text))
    except ValueError:
        if re.fullmatch(r"[0-9.]*|.*:.*", token.text, re.DOTALL):
            raise token.expected("an IP address without a port (the server block's zone has the port)") from None
    if len(token.text) > MAX_INTERFACE_CHARS or re.search(r"[\s/]", token.text):
        raise token.expected("an IP address or the name of a network interface")
    return token.text


OPTIONS = {"except": Option("except ADDRESS|INTERFACE...", adds("exclude", _host))}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> BindConfig:
    """Returns the configuration of a `bind` stanza; raises CorefileError."""
    count(stanza, "bind ADDRESS|INTERFACE...")
    return configured(BindConfig(_hosts(stanza.args)), stanza, OPTIONS)


def hosts_of(configs: tuple[BindConfig, ...]) -> tuple[str, ...]:
    """Returns the addresses and interfaces as they are written, without those excluded as they are written."""
    return tuple(dict.fromkeys(host for config in configs for host in config.hosts if host not in config.exclude))


def sets_up(options: BlockOptions, configs: tuple[BindConfig, ...]) -> BlockOptions:
    """Sets the addresses of all stanzas."""
    return replace(options, binds=configs)


DIRECTIVE = Directive(
    "bind", parse, repeat=Repeat.ADD, sets_up=sets_up, options=OPTIONS, is_listed=False, hosts_of=hosts_of
)
"""Not listed in coredns_plugin_enabled, as in CoreDNS, where it is not a plugin either."""
