"""Warnings of server blocks that are valid but probably unintended: words as zones, and servers that query
themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kdns.dns.names import is_below, labels_of
from kdns.errors import CorefileError
from kdns.net import parse_address
from kdns.plugins.directives import BY_NAME, COREDNS_ONLY
from kdns.plugins.sources.file import DIRECTIVE as FILE
from kdns.plugins.sources.file import FileConfig
from kdns.plugins.sources.forward.plugin import DIRECTIVE as FORWARD
from kdns.plugins.sources.forward.targets import Target
from kdns.plugins.sources.hosts import DIRECTIVE as HOSTS
from kdns.plugins.sources.hosts import HostsConfig
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.plugin import DIRECTIVE as KUBERNETES
from kdns.serverblocks.config import WILDCARD, ServerConfig, error_at
from kdns.serverblocks.stanza import is_duration
from kdns.spelling import closest

_ALSO_A_ZONE: Final = "local"
"""A directive whose name is also a common domain."""
_DIRECTIVES: Final = COREDNS_ONLY | BY_NAME.keys()
_OF_ZONES: Final = frozenset((FILE.name, HOSTS.name, KUBERNETES.name))
_SILENT: Final = frozenset(
    ("bind", "bufsize", "cache", "debug", "errors", "health", "loadbalance", "log", "loop", "metadata", "prometheus")
)
"""Directives that answer nothing themselves; any other one may have names in every zone."""
_OWN: Final = ("127.0.0.1", "::1", *WILDCARD)
"""Addresses that reach a server that listens on every address."""


def block_warnings(servers: Iterable[ServerConfig], dns_port: int) -> list[CorefileError]:
    return [
        warning
        for server in servers
        for warning in (*_stray_words(server), *_odd_zones(server), *_queries_itself(server, dns_port))
    ]


def _stray_words(server: ServerConfig) -> Iterator[CorefileError]:
    """Directives and other words in the position of zones."""
    where = "every address" if server.bound == WILDCARD else "the addresses of `bind`"
    has_others = len(server.zones) > 1
    has_root = has_others and "." in server.zones
    is_idle = {stanza.name for stanza in server.stanzas} <= _SILENT
    for address in server.addresses:
        word = address.token.text if address.token else ""
        if not word.isalnum() or word == _ALSO_A_ZONE:
            continue
        has_answers = _may_answer(server, word)
        meant = word if word in _DIRECTIVES else closest(word, BY_NAME)
        if meant and (has_root or is_idle or not has_answers or (has_others and meant == word)):
            hint = f"`{meant}` is a directive, and belongs into a block"
        elif not has_answers:
            hint = "no directive answers for it"
        elif has_root:
            hint = "`.` of the same block has every name already"
        else:
            continue
        yield error_at(server, address, f"`{word}` is taken for a zone, served on {where}; {hint}")


def _odd_zones(server: ServerConfig) -> Iterator[CorefileError]:
    """Addresses, durations and `stdout` in positions where they are zones, as in CoreDNS."""
    for address in server.addresses:
        if parse_address(host := address.zone.removesuffix(".")):
            hint = f"`bind {host}` listens on the address, `{host}/32` is its reverse zone"
            yield error_at(server, address, f"`{host}` is taken for a zone; {hint}")
    for stanza in server.stanzas:
        first = stanza.args[0] if stanza.args else None
        if first and stanza.name == "cache" and not first.text.isdigit() and is_duration(first.text):
            yield first.error(f"`{first.text}` is taken for a zone; a TTL is a number of seconds, without a unit")
        if first and stanza.name == "log" and first.text in {"stdout", "stderr"}:
            yield first.error(f"`{first.text}` is taken for a zone; lines of `log` are always on standard output")


def _may_answer(server: ServerConfig, word: str) -> bool:
    """Whether a directive of the block may have names in this zone; one that lists its zones has only those."""
    if {stanza.name for stanza in server.stanzas} - _SILENT - _OF_ZONES:
        return True
    configs: Sequence[FileConfig | HostsConfig | Options] = (
        *server.configs(FILE),
        *server.configs(HOSTS),
        *(config.options for config in server.configs(KUBERNETES)),
    )
    named = [labels_of(zone) for config in configs for zone in config.zones]
    zone = labels_of(f"{word.lower()}.")
    return any(is_below(zone, own) or is_below(own, zone) for own in named) if named else bool(server.stanzas)


def _queries_itself(server: ServerConfig, dns_port: int) -> Iterator[CorefileError]:
    if server.has_view or not server.is_placed:
        return
    hosts = _OWN if server.bound == WILDCARD else server.bound
    ports = {(address.scheme, address.port_or_default(dns_port)) for address in server.addresses}
    for config in server.configs(FORWARD):
        for target in config.targets:
            if not isinstance(target, Target):
                continue
            if target.host in hosts and (target.scheme, target.port) in ports:
                reason = f"`forward` to {target.host}, port {target.port}, queries this server block itself"
                yield target.token.error(reason) if target.token else server.error(reason)
