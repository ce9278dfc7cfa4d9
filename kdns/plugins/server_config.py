"""Server blocks → what each server does: its directives' configurations, and that no two want the same place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_address
from itertools import combinations
from typing import TypeAlias, TypeVar

from kdns.corefile.address import DEFAULT_PORTS, ZoneAddress
from kdns.corefile.lines import Stanza
from kdns.corefile.parse import ServerBlock
from kdns.errors import CorefileError
from kdns.plugins import bind
from kdns.plugins.directive import Directive, Repeat
from kdns.plugins.directives import BY_NAME, COREDNS_ONLY

Config = TypeVar("Config")

Place: TypeAlias = tuple[tuple[str, ...], int]
"""The addresses of one listener, and its port."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server block, understood: the configurations that count of each directive it has, in the chain's order."""

    path: str
    line: int
    addresses: tuple[ZoneAddress, ...]
    directives: Mapping[str, tuple[object, ...]]

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones of the block, each once."""
        return tuple(dict.fromkeys(address.zone for address in self.addresses))

    def configs(self, directive: Directive[Config]) -> tuple[Config, ...]:
        """The configurations of one directive, () where the block does not have it."""
        return self.directives.get(directive.name, ())  # type: ignore[return-value] # `parse` of that row made them

    def error(self, reason: str) -> CorefileError:
        """The error that points at the server block."""
        return CorefileError(self.path, self.line, "", reason)


def configure(
    blocks: Iterable[ServerBlock], *, dns_port: int = DEFAULT_PORTS["dns"], schemes: Collection[str] = ("dns",)
) -> tuple[ServerConfig, ...]:
    """The servers that the blocks ask for, in order; raises CorefileError.

    `dns_port` stands in for a missing port of dns://, `schemes` are those that can be served.
    """
    servers = tuple(_server(block) for block in blocks)
    for server in servers:
        for address in server.addresses:
            if address.scheme not in schemes:
                served = ", ".join(f"{scheme}://" for scheme in schemes)
                raise _at(server, address, f"kdns does not serve {address.scheme}:// (yet); it serves {served}")
    _refuse_overlaps(servers, dns_port)
    return servers


def _server(block: ServerBlock) -> ServerConfig:
    _refuse_missing_zones(block)
    zones = tuple(dict.fromkeys(address.zone for address in block.addresses))
    stanzas: dict[str, list[Stanza]] = {}
    parsed: dict[str, list[object]] = {}
    for stanza in block.stanzas:
        row = BY_NAME.get(stanza.name)
        if row is None:
            raise stanza.error(_unknown(stanza, block))
        stanzas.setdefault(stanza.name, []).append(stanza)
        first = stanzas[stanza.name][0]
        if first is not stanza and row.repeat is Repeat.ERROR:
            raise stanza.error(
                f"`{stanza.name}` may stand only once in a server block; first at {first.path}:{first.line}"
            )
        parsed.setdefault(stanza.name, []).append(row.parse(stanza, zones))
    counting = {
        name: tuple(parsed[name] if row.repeat is Repeat.ADD else parsed[name][-1:])
        for name, row in BY_NAME.items()
        if name in parsed
    }
    return ServerConfig(block.path, block.line, block.addresses, counting)


def _refuse_missing_zones(block: ServerBlock) -> None:
    """`errors` in the first line of a file without braces would be a zone: nobody means that."""
    for address in block.addresses:
        if not block.braces and address.token and address.token.text in BY_NAME:
            name = address.token.text
            raise address.token.error(
                f"a zone is wanted here and `{name}` is a directive: begin with a line such as `.:53`"
            )


def _unknown(stanza: Stanza, block: ServerBlock) -> str:
    name = stanza.name
    if name in COREDNS_ONLY:
        return f"kdns does not have the directive `{name}` (CoreDNS does)"
    if stanza.braces and not block.braces:
        return f"unknown directive `{name}`; if it is a zone: with more than one server block each needs {{ braces }}"
    meant = get_close_matches(name, (*BY_NAME, *sorted(COREDNS_ONLY)), n=1)
    if meant:
        return f"unknown directive `{name}`; did you mean `{meant[0]}`?"
    return f"unknown directive `{name}`; kdns has {', '.join(sorted(BY_NAME))}"


def _refuse_overlaps(servers: Iterable[ServerConfig], dns_port: int) -> None:
    """A zone on a port and an address cannot have two masters; a block without `bind` listens on every address."""
    taken: dict[tuple[str, str, int], dict[str, ServerConfig]] = {}
    for server in servers:
        for address in server.addresses:
            port = address.port_or_default(dns_port)
            others = taken.setdefault((address.scheme, address.zone, port), {})
            for host in bind.hosts_of(server.configs(bind.DIRECTIVE)) or ("",):
                for other_host, other in others.items():
                    if port and ("" in {host, other_host} or host == other_host):
                        where = f"{other.path}:{other.line}"
                        raise _at(
                            server, address, f"{address.zone} on port {port} is already served by the block at {where}"
                        )
                others[host] = server


def refuse_clashes(places: Mapping[Place, Sequence[tuple[ServerConfig, str]]]) -> None:
    """CorefileError for a zone that two blocks have at one place, and for places that cannot both be listened on.

    A place has the server blocks that listen there, each with one of its zones; interfaces have become addresses.
    Port 0 is another one each time.
    Differs: beside a block without `bind`, CoreDNS lets others of its port listen on single addresses, by sharing the
    port (SO_REUSEPORT); then another process may share it too, and takes a part of the queries.
    """
    for (hosts, port), parts in places.items():
        for (first, zone), (second, other) in combinations(parts, 2):
            if port and zone == other:
                where = f"{zone} on {_named(hosts)}, port {port},"
                raise second.error(f"{where} is already served by the block at {first.path}:{first.line}")
    for ((hosts, port), parts), ((others, other_port), other_parts) in combinations(places.items(), 2):
        if port and port == other_port and any(_meet(host, other) for host in hosts for other in others):
            (first, _), (second, _) = parts[0], other_parts[0]
            raise second.error(
                f"port {port} cannot be had on {_named(others)} beside {_named(hosts)}, which the block at "
                f"{first.path}:{first.line} listens on; wanted: `bind` with addresses in both, or in neither",
            )


def _meet(host: str, other: str) -> bool:
    mine, theirs = ip_address(host), ip_address(other)
    return mine.version == theirs.version and (mine.is_unspecified or theirs.is_unspecified)


def _named(hosts: Sequence[str]) -> str:
    return hosts[0] if len(hosts) == 1 else "every address"


def _at(server: ServerConfig, address: ZoneAddress, reason: str) -> CorefileError:
    return address.token.error(reason) if address.token else server.error(reason)
