"""What of server blocks is valid and rarely meant: words that became zones, and a server that asks itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kdns.corefile.address import ZoneAddress
from kdns.dnsserver.config import ServerConfig
from kdns.errors import CorefileError
from kdns.plugins.directives import BY_NAME, COREDNS_ONLY
from kdns.plugins.forward.plugin import DIRECTIVE as FORWARD
from kdns.plugins.forward.targets import Target
from kdns.spelling import closest

_ALSO_A_ZONE: Final = "local"
"""A directive whose name is a domain that people have."""
_OWN: Final = frozenset(("127.0.0.1", "::1", "0.0.0.0", "::"))
"""Addresses that lead to a server that listens on every address."""


def block_warnings(servers: Iterable[ServerConfig], dns_port: int) -> list[CorefileError]:
    """Returns the warnings about server blocks, in their order."""
    return [each for server in servers for each in (*_stray_words(server), *_asks_itself(server, dns_port))]


def _stray_words(server: ServerConfig) -> Iterator[CorefileError]:
    """A directive, or a word of no directive, that stands where zones stand."""
    where = "every address" if server.bound is None else "the addresses of `bind`"
    has_root = any(address.zone == "." for address in server.addresses)
    for address in server.addresses:
        word = address.token.text if address.token else ""
        if not word.isalnum() or word == _ALSO_A_ZONE:
            continue
        meant = word if word in COREDNS_ONLY | BY_NAME.keys() else closest(word, BY_NAME) if len(word) > 3 else ""
        if meant:
            hint = f"`{meant}` is a directive, and belongs into a block"
        elif not server.stanzas:
            hint = "no directive answers for it"
        elif has_root:
            hint = "`.` of the same block has every name already"
        else:
            continue
        yield _at(server, address, f"`{word}` is taken for a zone, served on {where}; {hint}")


def _asks_itself(server: ServerConfig, dns_port: int) -> Iterator[CorefileError]:
    if server.has_view or not server.is_placed:
        return
    hosts = frozenset(server.bound or _OWN)
    places = {(address.scheme, address.port_or_default(dns_port)) for address in server.addresses}
    for config in server.configs(FORWARD):
        for target in config.targets:
            if not isinstance(target, Target):
                continue
            if target.host in hosts and (target.scheme, target.port) in places:
                reason = f"`forward` to {target.host}, port {target.port}, asks this server block itself"
                yield target.token.error(reason) if target.token else server.error(reason)


def _at(server: ServerConfig, address: ZoneAddress, reason: str) -> CorefileError:
    return address.token.error(reason) if address.token else server.error(reason)
