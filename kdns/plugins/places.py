"""Where server blocks listen, once interfaces have become addresses: no two of them want the same thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from itertools import combinations
from typing import TypeAlias

from kdns.errors import CorefileError
from kdns.plugins.registry import ServerConfig
from kdns.plugins.server import Block

Place: TypeAlias = tuple[tuple[str, ...], int]
"""The addresses of one listener, and its port."""


def refuse_clashes(places: Mapping[Place, Sequence[tuple[ServerConfig, Block]]]) -> None:
    """CorefileError for a zone that two blocks have at one place, and for places that cannot both be listened on.

    Port 0 is another one each time.
    Differs: beside a block without `bind`, CoreDNS lets others of its port listen on single addresses, by sharing the
    port (SO_REUSEPORT); then another process may share it too, and takes a part of the queries.
    """
    for (hosts, port), parts in places.items():
        for (first, block), (second, other) in combinations(parts, 2):
            if port and block.zone == other.zone:
                where = f"{block.zone or '.'} on {_named(hosts)}, port {port},"
                raise _at(second, f"{where} is already served by the block at {first.path}:{first.line}")
    for ((hosts, port), parts), ((others, other_port), other_parts) in combinations(places.items(), 2):
        if port and port == other_port and any(_meet(host, other) for host in hosts for other in others):
            (first, _), (second, _) = parts[0], other_parts[0]
            raise _at(
                second,
                f"port {port} cannot be had on {_named(others)} beside {_named(hosts)}, which the block at "
                f"{first.path}:{first.line} listens on; wanted: `bind` with addresses in both, or in neither",
            )


def _meet(host: str, other: str) -> bool:
    mine, theirs = ip_address(host), ip_address(other)
    return mine.version == theirs.version and (mine.is_unspecified or theirs.is_unspecified)


def _named(hosts: Sequence[str]) -> str:
    return hosts[0] if len(hosts) == 1 else "every address"


def _at(config: ServerConfig, reason: str) -> CorefileError:
    return CorefileError(config.path, config.line, "", reason)
