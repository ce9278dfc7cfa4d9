"""Rules of a node-local DNS cache: its packets are not tracked, so that no table of connections fills up with queries.

Packets that are not tracked pass by the rules of Services too: the cluster IP of `kube-dns` is then the node's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kdns.net import is_ipv6

TABLE: Final = "kdns-node-local"
DELETION: Final = f"delete table inet {TABLE}"
"""Fails if the table does not exist."""
HEALTH_PORT: Final = 8080
"""The port of `health`, whose probes come from the node itself."""
RAW: Final = -300
"""The priority of iptables' table raw, ahead of connection tracking."""


def ruleset(addresses: Iterable[str], ports: Iterable[int]) -> str:
    """Text of nft, to be loaded in one transaction in place of the table before."""
    udp, tcp = (", ".join(map(str, sorted(numbers))) for numbers in (set(ports), {*ports, HEALTH_PORT}))
    incoming, outgoing = [], []
    for family, is_six in (("ip", False), ("ip6", True)):
        if own := ", ".join(address for address in addresses if is_ipv6(address) == is_six):
            for protocol, numbers in (("udp", udp), ("tcp", tcp)):
                query = f"    {family} daddr {{ {own} }} {protocol} dport {{ {numbers} }} notrack"
                incoming.append(query)
                outgoing += [query, f"    {family} saddr {{ {own} }} {protocol} sport {{ {numbers} }} notrack"]
    return "\n".join((
        f"table inet {TABLE}",
        DELETION,
        f"table inet {TABLE} {{",
        '  comment "kdns: the node-local DNS cache is not tracked"',
        "  chain prerouting {",
        f"    type filter hook prerouting priority {RAW}; policy accept;",
        *incoming,
        "  }",
        "  chain output {",
        f"    type filter hook output priority {RAW}; policy accept;",
        *outgoing,
        "  }",
        "}",
    ))  # fmt: skip


def removal() -> str:
    """Works whether the table exists or not."""
    return f"table inet {TABLE}\n{DELETION}"
